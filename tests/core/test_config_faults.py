# SPDX-License-Identifier: Apache-2.0
"""Faults of a configuration: each names the key path, the value, what is allowed and the nearest choice."""

import json
from typing import Any

import pytest

from rdma_plugin.core import config
from rdma_plugin.core.errors import ConfigError
from tests.core.corpus import resource


def faults(document: object) -> list[str]:
    """Return the faults of a document as `path: sentence`."""
    with pytest.raises(ConfigError) as caught:
        config.parse(json.dumps(document), "test")
    assert str(caught.value).splitlines() == [f"test: {fault.where}: {fault.what}" for fault in caught.value.faults]
    return [f"{fault.where}: {fault.what}" for fault in caught.value.faults]


def fault(**changes: Any) -> str:
    """Return the one fault of a valid resource with changes, without the path of the resource."""
    (text,) = faults({"configList": [resource(**changes)]})
    return text.removeprefix("configList[0].")


def selecting(**selectors: Any) -> str:
    """Return the one fault of these selectors, without their path."""
    return fault(selectors=selectors).removeprefix("selectors.")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"vendors": ["15b3"]}, "vendors: unknown key here; it belongs inside selectors"),
        ({"periodicUpdateInterval": 60}, "periodicUpdateInterval: unknown key here; it belongs at the top of the file"),
        ({"rdmaHCAMax": 3}, 'rdmaHCAMax: unknown key; did you mean "rdmaHcaMax"?'),
        ({"resource_name": "a"}, 'resource_name: unknown key; did you mean "resourceName"?'),
        ({"chardevices": None}, 'chardevices: unknown key; did you mean "charDevices"?'),
        (
            {"a b": 1},
            (
                'configList[0]["a b"]: unknown key; allowed are resourceName, resourcePrefix, rdmaHcaMax, selectors, exclude, '
                "charDevices, allocation, health, topology, env, ncclEnv, cdi, includeManagement, devices"
            ),
        ),
        ({"exclude": {"vendor": []}}, 'exclude.vendor: unknown key; did you mean "vendors"?'),
    ],
)
def test_unknown_keys(changes: dict[str, Any], text: str) -> None:
    """An unknown key names the nearest one, or the place where it belongs, or all keys."""
    assert fault(**changes) == text


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("vendor", "vendors"),
        ("deviceIds", "deviceIDs"),
        ("ifnames", "ifNames"),
        ("pfName", "pfNames"),
        ("linkType", "linkTypes"),
        ("rootDevice", "rootDevices"),
        ("pciAddress", "pciAddresses"),
        ("numaNode", "numaNodes"),
    ],
)
def test_unknown_selectors(key: str, near: str) -> None:
    """A misspelt selector is never dropped, and that nothing else is selected is no second fault."""
    assert selecting(**{key: ["x"]}) == f'{key}: unknown key; did you mean "{near}"?'


def test_keys_in_another_case() -> None:
    """A key with other capitals is one fault, not an unknown and a missing one."""
    assert faults({"configlist": []}) == ['configlist: unknown key; did you mean "configList"?']
    assert faults({"configList": [{"resourceName": "a", "RDMAHCAMAX": 1, "Selectors": {}}]}) == [
        'configList[0].RDMAHCAMAX: unknown key; did you mean "rdmaHcaMax"?',
        'configList[0].Selectors: unknown key; did you mean "selectors"?',
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("200", '"200" is text; write 200 without quotes; '),
        ("many", '"many" is text; '),
        (True, "true is not a number; "),
        (200.0, "200.0 is not a plain whole number; write 200; "),
        (0.5, "0.5 is not a plain whole number; "),
        (-100, "-100 is out of range; "),
        (100_001, "100001 is out of range; "),
        ([200], "a list is not a number; "),
        ({}, "an object is not a number; "),
    ],
)
def test_rdma_hca_max(value: object, text: str) -> None:
    """A whole number from 0 to 100000, not text, not a boolean, not a fraction."""
    assert fault(rdmaHcaMax=value) == f"rdmaHcaMax: {text}a whole number from 0 to 100000 is allowed"


def test_rdma_hca_max_is_required() -> None:
    """A missing or null number of slots is a fault (C2), not the peer's silent zero."""
    text = 'rdmaHcaMax: is missing; write the number of shared slots, for example "rdmaHcaMax": 200'
    assert fault(rdmaHcaMax=None) == text
    assert faults({"configList": [{"resourceName": "a", "devices": ["ib0"]}]}) == [f"configList[0].{text}"]


@pytest.mark.parametrize("value", [-10, 86_401, "60", 60.5, False])
def test_interval(value: object) -> None:
    """The interval names the key and the value."""
    (text,) = faults({"periodicUpdateInterval": value, "configList": [resource()]})
    assert text.startswith(f"periodicUpdateInterval: {json.dumps(value)} is ")
    assert text.endswith("a whole number from 0 to 86400 is allowed (seconds; 0 = no periodic scan)")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rdma/hca", '"rdma/hca" has a "/"; put the part before it into resourcePrefix'),
        ("hca$a", 'write for example "hca_a"'),
        ("_hca", 'write for example "hca"'),
        ("hca-", 'write for example "hca"'),
        ("$", 'write for example "hca_shared_devices_a"'),
        ("my hca", '"my hca" has a space or an unprintable character in it'),
        ("a" * 64, "has 64 characters; at most 63 are allowed"),
        ("", "the text is empty"),
        (["a"], "a list is not text"),
    ],
)
def test_resource_names(name: object, text: str) -> None:
    """What IsExtendedResourceName refuses is refused here, with what to write instead."""
    found = fault(resourceName=name)
    assert found.startswith("resourceName: ")
    assert text in found


@pytest.mark.parametrize(
    ("prefix", "text"),
    [
        ("Example.COM", 'write for example "example.com"'),
        ("rdma/", 'write for example "rdma"'),
        ("a..b", '"a..b" is not a DNS name'),
        ("-a", 'write for example "a"'),
        ("_a", '"_a" is not a DNS name'),
        ("kubernetes.io", "belongs to Kubernetes"),
        ("node.kubernetes.io", "belongs to Kubernetes"),
        ("requests.rdma", "belongs to Kubernetes"),
        ("x y/$", "has a space"),
        ("a" * 245, "has 245 characters; at most 244 are allowed"),
        (5, '5 is not text; write it in quotes: "5"'),
    ],
)
def test_resource_prefixes(prefix: object, text: str) -> None:
    """What no kubelet registers is refused, except the underscore of the peer's documentation."""
    found = fault(resourcePrefix=prefix)
    assert found.startswith("resourcePrefix: ")
    assert text in found


def test_name_used_twice() -> None:
    """The second place names the first, also where one of them leaves the prefix to the default."""
    texts = faults(
        {"configList": [resource(), resource(resourceName="b"), resource(resourcePrefix="rdma", rdmaHcaMax=9)]}
    )
    assert texts == ['configList[2].resourceName: "rdma/a" already exists in configList[0]; names must be unique']


EMPTY = (
    'no list holds anything, which would take every RDMA device; write for example "vendors": ["15b3"] (Mellanox), '
    '"linkTypes": ["infiniband"] or "ifNames": ["ibs*"]'
)


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"selectors": {}}, f"selectors: {EMPTY}"),
        ({"selectors": {"vendors": [], "ifNames": None}}, f"selectors: {EMPTY}"),
        ({"selectors": {}, "devices": []}, f"selectors: {EMPTY}"),
        ({"selectors": None}, f"selectors: is missing; {EMPTY.partition('; ')[2]}"),
        (
            {"devices": ["ib0"]},
            (
                "devices: is the old name of selectors.ifNames and can't stand beside selectors; "
                "move its names to ifNames there"
            ),
        ),
        ({"selectors": None, "devices": "ib0"}, 'devices: "ib0" is not a list; write ["ib0"]'),
        ({"selectors": {}, "devices": ["ib0", 1]}, 'devices[1]: 1 is not text; write it in quotes: "1"'),
        ({"selectors": ["15b3"]}, "selectors: a list is not allowed; write an object in {}"),
    ],
)
def test_selectors_or_devices(changes: dict[str, Any], text: str) -> None:
    """One of the two must name something; an empty selector would take every device, and the fault says so."""
    assert fault(**changes) == text


def test_old_devices_keep_their_path() -> None:
    """A fault in the old `devices` list is reported there, not where the list is read as ifNames."""
    (text,) = faults({"configList": [{"resourceName": "a", "rdmaHcaMax": 1, "devices": ["ib0", "a/b"]}]})
    assert text.startswith('configList[0].devices[1]: "a/b" has a "/"')


@pytest.mark.parametrize(
    ("selectors", "text"),
    [
        (
            {"vendors": ["mellanox"]},
            ('vendors[0]: "mellanox" is not a hexadecimal id of one to four digits; write for example "15b3"'),
        ),
        (
            {"vendors": ["Intel"]},
            ('vendors[0]: "Intel" is not a hexadecimal id of one to four digits; write for example "8086"'),
        ),
        ({"vendors": "15b3"}, 'vendors: "15b3" is not a list; write ["15b3"]'),
        ({"deviceIDs": [1021]}, 'deviceIDs[0]: 1021 is not text; write it in quotes: "1021"'),
        (
            {"deviceIDs": ["1021"], "devices": ["1017"]},
            ("devices: is the old name of deviceIDs, which is here too; write only one of them"),
        ),
        (
            {"drivers": ["mlx5 core"]},
            ('drivers[0]: "mlx5 core" has a space or an unprintable character in it; write for example "mlx5_core"'),
        ),
        ({"ifNames": ["ib[0-3"]}, 'ifNames[0]: "ib[0-3" has a "[" without its "]"; write for example "ib[0-3]"'),
        ({"ifNames": ["ib[]"]}, 'ifNames[0]: "ib[]" has a "[" without its "]"; write for example "ib[0-3]"'),
        ({"ifNames": ["0000:18:00.0"]}, 'ifNames[0]: "0000:18:00.0" is a PCI address; write it under pciAddresses'),
        (
            {"pciAddresses": ["18:00"]},
            'pciAddresses[0]: "18:00" is not a PCI address; write for example "0000:18:00.0"',
        ),
        (
            {"linkTypes": ["infinband"]},
            (
                'linkTypes[0]: "infinband" is not a link type; write "infiniband" (or "ib"), '
                '"ether" (or "eth", "roce"); did you mean "infiniband"?'
            ),
        ),
        (
            {"numaNodes": ["0"]},
            'numaNodes[0]: "0" is text; write 0 without quotes; a whole number from 0 to 1023 is allowed',
        ),
        ({"numaNodes": [-1]}, "numaNodes[0]: -1 is out of range; a whole number from 0 to 1023 is allowed"),
        ({"rootDevices": ["ens1#0"]}, 'rootDevices[0]: "ens1" is not a PCI address; write for example "0000:18:00.0"'),
    ],
)
def test_selector_values(selectors: dict[str, Any], text: str) -> None:
    """A value that could never match says what to write."""
    assert selecting(**selectors) == text


@pytest.mark.parametrize(
    ("entry", "text"),
    [
        ("a#5-3", '"a#5-3": the range "5-3" is reversed; write "3-5"'),
        ("a#1#2", '"a#1#2" has two "#"; write for example "ens1f0np0#0-3,5"'),
        ("a#", '"a#": "" is not an index or a range of indices; write for example "#0-3,5"'),
        ("a#x", '"a#x": "x" is not an index or a range of indices; write for example "#0-3,5"'),
        ("a#1-2-3", '"a#1-2-3": "1-2-3" is not an index or a range of indices; write for example "#0-3,5"'),
        ("a#1,", '"a#1,": "" is not an index or a range of indices; write for example "#0-3,5"'),
        ("a#-1", '"a#-1": "-1" is not an index or a range of indices; write for example "#0-3,5"'),
        ("a#0, 1", '"a#0, 1" has a space or an unprintable character in it; write for example "ens1f0np0"'),
        ("a#0-65536", '"a#0-65536": index 65536 is out of range; 0 to 65535 is allowed'),
        ("#0", 'the text is empty; write for example "ens1f0np0"'),
    ],
)
def test_ranges(entry: str, text: str) -> None:
    """The range of functions is read strictly; nothing left of a fault counts."""
    assert selecting(pfNames=[entry]) == f"pfNames[0]: {text}"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"charDevices": ["umad"]}, 'charDevices: "uverbs" is missing; no RDMA program works without it, so add it'),
        (
            {"charDevices": ["uverb"]},
            (
                'charDevices[0]: "uverb" is not allowed; write "uverbs" or "umad" or "issm" or '
                '"rdma_cm"; did you mean "uverbs"?'
            ),
        ),
        ({"health": "Any"}, 'health: "Any" is not allowed; write "any" or "all" or "present"; did you mean "any"?'),
        ({"topology": False}, 'topology: false is not allowed; write "auto" or "off"'),
        ({"allocation": "device"}, 'allocation: "device" is not available in this version; write "all"'),
        ({"cdi": True}, "cdi: true is not available in this version; write false or remove the key"),
        ({"env": "True"}, 'env: "True" is not allowed; write true, unquoted'),
        ({"ncclEnv": 1}, "ncclEnv: 1 is not allowed; write true or false, unquoted"),
        ({"exclude": ["eth0"]}, "exclude: a list is not allowed; write an object in {}"),
    ],
)
def test_other_keys(changes: dict[str, Any], text: str) -> None:
    """Fixed words, booleans and objects; what a later version brings is refused by name."""
    assert fault(**changes) == text


def test_all_faults_at_once_in_document_order() -> None:
    """Faults of single keys, of keys together and of the whole come in the order of the file."""
    document = {
        "configList": [
            {"rdmaHcaMax": "1", "selectors": {"vendor": [], "numaNodes": [True]}, "resourceName": "a", "health": 1},
            {"resourceName": "a", "devices": ["a/b"]},
        ],
        "interval": 3,
        "periodicUpdateInterval": -1,
    }
    assert [text.split(": ")[0] for text in faults(document)] == [
        "configList[0].rdmaHcaMax",
        "configList[0].selectors.vendor",
        "configList[0].selectors.numaNodes[0]",
        "configList[0].health",
        "configList[1].resourceName",
        "configList[1].devices[0]",
        "configList[1].rdmaHcaMax",
        "interval",
        "periodicUpdateInterval",
    ]


def test_repeated_keys_beside_other_faults() -> None:
    """A key that stands twice is a fault of its own, with its path; the others are reported too."""
    text = '{"configList": [{"resourceName": "a", "rdmaHcaMax": 1, "rdmaHcaMax": "2", "devices": ["ib0"]}], "x": {"y": 1, "y": 2}}'
    with pytest.raises(ConfigError) as caught:
        config.parse(text, "test")
    assert [f"{found.where}: {found.what}" for found in caught.value.faults] == [
        "configList[0].rdmaHcaMax: stands here more than once; remove all but one",
        'configList[0].rdmaHcaMax: "2" is text; write 2 without quotes; a whole number from 0 to 100000 is allowed',
        "x: unknown key; allowed are periodicUpdateInterval, configList",
        "x.y: stands here more than once; remove all but one",
    ]


def test_empty_list_of_resources() -> None:
    """The peer's words for it, and what to do."""
    assert faults({"configList": []}) == [
        "configList: no resources configuration found: the list is empty; write at least one object"
    ]
