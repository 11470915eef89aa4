# SPDX-License-Identifier: Apache-2.0
"""Configurations that load: the peer's files as they are, and every key with its normal form."""

import json
from pathlib import Path
from typing import Any

import pytest

from rdma_plugin.core import config
from rdma_plugin.core.config import Config, FunctionRange, Resource, Selectors
from rdma_plugin.core.model import CharKind, LinkType
from tests.core.corpus import resource

SAMPLES = sorted(Path(__file__).with_name("samples").glob("*.json"))


def load(name: str) -> Config:
    """Parse a sample file."""
    return config.parse(Path(__file__).with_name("samples").joinpath(f"{name}.json").read_bytes(), name)


def one(**changes: Any) -> Resource:
    """Parse a configuration of one valid resource with changes."""
    return config.parse(json.dumps({"configList": [resource(**changes)]}), "test").config_list[0]


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_load(path: Path) -> None:
    """Each sample loads, as bytes and as text, to equal and hashable values."""
    parsed = config.parse(path.read_bytes(), path.name)
    assert parsed == config.parse(path.read_text(), path.name)
    assert hash(parsed) == hash(config.parse(path.read_bytes(), path.name))


def test_example_of_the_task() -> None:
    """Empty lists are no constraint; one interface is left, 200 slots, 300 s."""
    parsed = load("task")
    (hca,) = parsed.config_list
    assert parsed.periodic_update_interval == 300
    assert (hca.full_name, hca.rdma_hca_max, hca.problem) == ("rdma/hca_shared_devices_a", 200, None)
    assert hca.selectors == Selectors(ifNames=("ibs108",))


def test_readme_of_the_peer() -> None:
    """`devices` acts as ifNames, deviceIDs as device ids; the prefix that no kubelet takes is a stated problem."""
    first, second = load("peer-readme").config_list
    assert (first.full_name, first.rdma_hca_max) == ("example_prefix/hca_shared_devices_a", 1000)
    assert first.selectors == Selectors(ifNames=("ib0", "ib1"))
    assert first.problem is not None
    assert "the kubelet refuses this name" in first.problem.what
    assert '"example-prefix"' in first.problem.hint
    assert (second.full_name, second.rdma_hca_max, second.problem) == ("rdma/hca_shared_devices_b", 500, None)
    assert second.selectors == Selectors(vendors=("15b3",), deviceIDs=("1017",), ifNames=("ib3", "ib4"))


def test_nulls_and_empty_values_of_the_peer() -> None:
    """The peer takes null as absent, an empty prefix as rdma, 0 slots as valid, and `devices` beside empty selectors."""
    parsed = load("peer-all-keys")
    first, second = parsed.config_list
    assert parsed.periodic_update_interval == 0
    assert (first.full_name, first.rdma_hca_max) == ("rdma/hca_shared_devices_a", 0)
    assert first.selectors.device_ids == ("1021", "101d")
    assert (first.selectors.drivers, first.selectors.link_types) == (("mlx5_core",), (LinkType.ETHER,))
    assert second.selectors == Selectors(ifNames=("ens1f0np0",))


def test_every_key_in_normal_form() -> None:
    """Ids, addresses, link words and ranges come out in one spelling; globs stay as they are."""
    parsed = load("every-key")
    (hca,) = parsed.config_list
    assert parsed.periodic_update_interval == 86_400
    assert (hca.full_name, hca.rdma_hca_max) == ("rdma.example.com/hca-1.nics_a", 100_000)
    asked = hca.selectors
    assert (asked.vendors, asked.device_ids) == (("15b3", "8086"), ("1021", "a2dc"))
    assert (asked.drivers, asked.if_names, asked.rdma_devices) == (("mlx5_*",), ("ibs*", "ib[0-3]"), ("mlx5_?",))
    assert asked.pf_names == (FunctionRange("ens1f0np0", ((0, 3), (5, 5))), FunctionRange("ens2*", None))
    assert asked.root_devices == (FunctionRange("0000:18:00.0", ((7, 7),)), FunctionRange("0000:29:00.0", None))
    assert asked.link_types == (LinkType.INFINIBAND, LinkType.ETHER)
    assert (asked.pci_addresses, asked.numa_nodes) == (("10000:e1:00.0", "0000:18:00.0"), (0, 1))
    assert hca.exclude == Selectors(deviceIDs=("101e",), ifNames=("eth*",))
    assert set(hca.char_devices) == set(CharKind)
    assert (hca.allocation, hca.health, hca.topology) == ("all", "present", "off")
    assert (hca.env, hca.nccl_env, hca.include_management) == (False, True, True)


def test_defaults() -> None:
    """What is left out: 60 s, rdma, uverbs and rdma_cm, any, auto, env on, NCCL and management off."""
    hca = one()
    assert config.parse(json.dumps({"configList": [resource()]}), "test").periodic_update_interval == 60
    assert hca.resource_prefix == "rdma"
    assert hca.char_devices == (CharKind.UVERBS, CharKind.RDMA_CM)
    assert (hca.allocation, hca.health, hca.topology, hca.exclude) == ("all", "any", "auto", None)
    assert (hca.env, hca.nccl_env, hca.include_management) == (True, False, False)


@pytest.mark.parametrize("word", ["infiniband", "ib", "IB", "InfiniBand"])
def test_words_for_infiniband(word: str) -> None:
    """Every synonym, in any case, is the one link type."""
    assert one(selectors={"linkTypes": [word]}).selectors.link_types == (LinkType.INFINIBAND,)


@pytest.mark.parametrize("word", ["ether", "eth", "ethernet", "Ethernet", "roce", "RoCE"])
def test_words_for_ethernet(word: str) -> None:
    """Every synonym, in any case, is the one link type."""
    assert one(selectors={"linkTypes": [word]}).selectors.link_types == (LinkType.ETHER,)


def test_equal_entries_count_once() -> None:
    """Entries that are the same in normal form are one entry."""
    assert one(selectors={"vendors": ["15b3", "0x15B3"], "linkTypes": ["ib", "infiniband"]}).selectors == Selectors(
        vendors=("15b3",), linkTypes=(LinkType.INFINIBAND,)
    )


@pytest.mark.parametrize(
    "ids", [{"deviceIDs": ["1021"]}, {"devices": ["1021"]}, {"deviceIDs": [], "devices": ["1021"]}]
)
def test_devices_inside_selectors_are_device_ids(ids: dict[str, list[str]]) -> None:
    """Inside selectors and exclude, `devices` is another name of deviceIDs; an empty list of the other is no clash."""
    assert one(selectors=ids).selectors.device_ids == ("1021",)
    exclude = one(exclude=ids).exclude
    assert exclude is not None
    assert exclude.device_ids == ("1021",)


def test_exclude_may_be_empty() -> None:
    """An exclude that names nothing leaves nothing out."""
    assert one(exclude={}).exclude == Selectors()
    assert one(exclude={"vendors": []}).exclude == Selectors()


def test_same_name_below_two_prefixes() -> None:
    """Names are unique for each prefix, so that the peer's README keeps its word."""
    text = json.dumps({"configList": [resource(), resource(resourcePrefix="example.com")]})
    assert [hca.full_name for hca in config.parse(text, "test").config_list] == ["rdma/a", "example.com/a"]


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("a", "A"),
        ("a" * 244, "a" * 63),
        ("requests", "x"),
        ("kubernetes.io.example.com", "x"),
        ("0.1", "0"),
        ("rdma", "a--b__c..d"),
    ],
)
def test_names_that_the_kubelet_takes(prefix: str, name: str) -> None:
    """The longest and oddest names of IsExtendedResourceName."""
    assert one(resourcePrefix=prefix, resourceName=name).full_name == f"{prefix}/{name}"


def test_ranges_read_back() -> None:
    """A range prints as it is written in the file."""
    entries = ["ens1#0-3,5", "ens1", "ens*#7"]
    assert [str(entry) for entry in one(selectors={"pfNames": entries}).selectors.pf_names] == entries


def test_cdi_may_be_off() -> None:
    """`cdi: false` says what is so in this version."""
    assert one(cdi=False) == one()
