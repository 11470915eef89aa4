# SPDX-License-Identifier: Apache-2.0
"""The laid-out node itself: links, character devices, changes, and files that can't mean what they say."""

import dataclasses
import os
import stat
from pathlib import Path

import pytest

from tests.fakes import nodes

_SMALL = """
format: 1
name: small
pci:
- {at: "pci0000:00/00:01.0/01:00.0", id: "15b3:1021", class: "0200", net: [{name: eth0, mac: "02:00:00:00:00:01"}]}
expect: {rdma_cm: true, rdma: {}}
"""


@pytest.mark.parametrize("path", nodes.ALL, ids=lambda path: path.stem)
def test_links_are_relative_and_stay_inside(root: Path, path: Path) -> None:
    """As in the kernel, every link in sys is relative and leads to something below the same sys."""
    nodes.lay_out(nodes.load(path), root, "links")
    links = [link for link in (root / "sys").rglob("*") if link.is_symlink()]

    assert links
    assert not [link for link in links if link.readlink().is_absolute()]
    assert not [link for link in links if not link.resolve(strict=True).is_relative_to(root.resolve() / "sys")]


def test_class_entries_link_as_the_kernel_does(root: Path) -> None:
    """Links go up to the deepest shared directory, character for character as on a real server."""
    nodes.lay_out(nodes.load(nodes.BLUEFIELD), root, "links")
    function = "devices/pci0000:00/0000:00:00.0/0000:01:00.0/0000:02:00.0/0000:03:00.0"

    assert (root / "sys/class/infiniband/mlx5_0").readlink() == Path(f"../../{function}/infiniband/mlx5_0")
    assert (root / f"sys/{function}/net/p0/device").readlink() == Path("../../../0000:03:00.0")
    assert (root / "sys/bus/pci/devices/0000:03:00.0").readlink() == Path(f"../../../{function}")
    assert (root / "sys/class/infiniband/mlx5_0/node_guid").read_bytes() == b"0c42:a103:00d6:5a10\n"


def test_vf_links_point_both_ways(root: Path) -> None:
    """A VF's place follows from offset and stride; `physfn` and `virtfnN` are siblings' links."""
    nodes.lay_out(nodes.load(nodes.SRIOV), root, "links")
    devices = root / "sys/bus/pci/devices"

    assert (devices / "0000:5e:00.0/virtfn6").readlink() == Path("../0000:5e:01.0")
    assert (devices / "0000:5e:01.0/physfn").readlink() == Path("../0000:5e:00.0")


@pytest.mark.parametrize("wanted", ["links", None])
def test_each_node_in_dev_has_the_number_that_sysfs_states(root: Path, wanted: nodes.Chars | None) -> None:
    """Whichever way nodes are made, they are character devices of the stated number, also through a link."""
    nodes.lay_out(nodes.load(nodes.DGX), root, wanted)
    promised = [*(root / "sys/class/infiniband_verbs").glob("uverbs*"), root / "sys/class/misc/rdma_cm"]

    assert len(promised) == 12
    for device in promised:
        found = (root / "dev/infiniband" / device.name).stat()
        assert stat.S_ISCHR(found.st_mode)
        assert (device / "dev").read_text() == f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}\n"


def test_dev_changes_are_made(root: Path) -> None:
    """Nodes can be missing or be plain files, and directories can lie between them."""
    dev = {"missing": ["uverbs0"], "files": ["uverbs1"], "dirs": ["by-ibdev"]}
    nodes.lay_out(dataclasses.replace(nodes.load(nodes.DGX), dev=dev), root)
    infiniband = root / "dev/infiniband"

    assert not (infiniband / "uverbs0").exists()
    assert (infiniband / "uverbs1").is_file()
    assert (infiniband / "by-ibdev").is_dir()
    assert (infiniband / "uverbs2").is_char_device()


def test_new_names_are_followed() -> None:
    """A renamed bond is the master of its members; a renamed ibdev is the port below its IPoIB interface."""
    lag = nodes.load(nodes.LAG, changes={"net bond0": {"name": "bond1"}})
    dgx = nodes.load(nodes.DGX, changes={"rdma mlx5_0": {"name": "ibp24s0"}})

    assert {net.master for function in lag.functions for net in function.net} == {None, "bond1"}
    assert "bond1" in {port.ndev for function in lag.functions for device in function.rdma for port in device.ports}
    assert dgx.functions[0].net[0].ipoib == "ibp24s0/1"


def test_changes_come_after_the_variant() -> None:
    """A change sees the names that the variant made."""
    node = nodes.load(nodes.LAG, "gcp-names", {"net gpu0rdma0": {"name": "rail0"}})

    assert node.functions[0].net[0].name == "rail0"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (_SMALL.replace('"02:00:00:00:00:01"', "10:20:30:40:50:55"), "mac: quote it"),
        (_SMALL.replace('"0200"', "0200"), "class: quote it"),
        (_SMALL.replace("01:00.0", "nonsense"), "doesn't end in a PCI address"),
    ],
)
def test_ambiguous_text_is_refused(root: Path, text: str, words: str) -> None:
    """YAML 1.1 reads an unquoted address as a base-60 number; that is said instead of laid out."""
    path = root / "small.yaml"
    path.write_text(text)

    with pytest.raises(ValueError, match=words):
        nodes.load(path)


def test_unknown_key_is_refused(root: Path) -> None:
    """A misspelt key of the format is an error, not a missing file."""
    path = root / "small.yaml"
    path.write_text(_SMALL.replace("name: eth0", "name: eth0, portname: p0"))

    with pytest.raises(TypeError, match="portname"):
        nodes.load(path)


def test_unknown_variant_and_target_are_refused() -> None:
    """The error names what there is."""
    with pytest.raises(ValueError, match="there are: no-umad"):
        nodes.load(nodes.DGX, "no-such")
    with pytest.raises(ValueError, match="'net eth9' names 0 things"):
        nodes.load(nodes.DGX, changes={"net eth9": {"name": "eth1"}})
