# SPDX-License-Identifier: Apache-2.0
"""Verdicts: AND over keys, OR within a key, exclude by OR, and a reason that a person understands."""

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdma_plugin.core import config, selectors
from rdma_plugin.core.config import Resource
from rdma_plugin.core.model import Auxiliary, LinkType, NetDevice, PciFunction, Port, RdmaDevice
from tests.core.documents import selectors as drawn_selectors

PF = PciFunction(
    address="0000:5e:00.0", sys_path="devices/x", vendor="15b3", device="101d", driver="mlx5_core", numa_node=1
)
VF = replace(PF, address="0000:5e:00.4", device="101e", pf="0000:5e:00.0", vf_index=2)
IB = Port(number=1, link_type=LinkType.INFINIBAND)
ETHER = Port(number=2, link_type=LinkType.ETHER)
HCA = RdmaDevice(
    name="mlx5_1", pci=PF, ports=(ETHER,), netdevs=(NetDevice(name="ens1f0np0"),), pf_netdevs=("ens1f0np0",)
)
VF_HCA = replace(HCA, name="mlx5_8", pci=VF, netdevs=())
SF_HCA = replace(
    HCA, name="mlx5_9", auxiliary=Auxiliary(name="mlx5_core.sf.4", sfnum=88), netdevs=(NetDevice(name="enp94s0f0s88"),)
)
RXE = RdmaDevice(
    name="rxe0",
    software="rdma_rxe",
    is_virtual=True,
    ports=(ETHER,),
    netdevs=(NetDevice(name="eth0"),),
    pf_netdevs=("eth0",),
)


def resource(asked: dict[str, Any], **changes: Any) -> Resource:
    """Return a resource with these selectors."""
    document = {"resourceName": "a", "rdmaHcaMax": 1, "selectors": asked, **changes}
    return config.parse(json.dumps({"configList": [document]}), "test").config_list[0]


def reason(asked: dict[str, Any], device: RdmaDevice = HCA, **changes: Any) -> str:
    """Return the reason of a verdict; reasons of selected devices start with `selected`, others don't."""
    verdict = selectors.match(resource(asked, **changes), device)
    assert (verdict.device, verdict.resource) == (device.name, "rdma/a")
    assert verdict.selected == verdict.reason.startswith("selected: ")
    return verdict.reason


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        ({"vendors": ["0x15B3"]}, 'selected: vendors "15b3" matches 15b3'),
        ({"vendors": ["8086"]}, "vendors wants 8086; this is 15b3"),
        ({"vendors": ["8086", "14e4"]}, "vendors wants 8086 or 14e4; this is 15b3"),
        ({"deviceIDs": ["101D"]}, 'selected: deviceIDs "101d" matches 101d'),
        ({"devices": ["1021"]}, "deviceIDs wants 1021; this is 101d"),
        ({"drivers": ["mlx*"]}, 'selected: drivers "mlx*" matches mlx5_core'),
        ({"drivers": ["efa"]}, "drivers wants efa; this is mlx5_core"),
        ({"ifNames": ["ens1f*"]}, 'selected: ifNames "ens1f*" matches ens1f0np0'),
        ({"ifNames": ["ibs108"]}, "ifNames wants ibs108; its interface is ens1f0np0"),
        ({"ifNames": ["ENS1F0NP0"]}, "ifNames wants ENS1F0NP0; its interface is ens1f0np0"),
        (
            {"ifNames": ["mlx5_1"]},
            ("ifNames wants mlx5_1; its interface is ens1f0np0 (mlx5_1 is its RDMA name: write it under rdmaDevices)"),
        ),
        (
            {"rdmaDevices": ["ens1f0np0"]},
            ("rdmaDevices wants ens1f0np0; this is mlx5_1 (ens1f0np0 is its interface: write it under ifNames)"),
        ),
        ({"rdmaDevices": ["mlx5_[0-3]"]}, 'selected: rdmaDevices "mlx5_[0-3]" matches mlx5_1'),
        ({"linkTypes": ["RoCE"]}, 'selected: linkTypes "ether" matches ether'),
        ({"linkTypes": ["ib"]}, "linkTypes wants infiniband; this is ether"),
        ({"pciAddresses": ["5E:00.0"]}, 'selected: pciAddresses "0000:5e:00.0" matches 0000:5e:00.0'),
        ({"pciAddresses": ["0001:5e:00.0"]}, "pciAddresses wants 0001:5e:00.0; this is 0000:5e:00.0"),
        ({"numaNodes": [0, 1]}, 'selected: numaNodes "1" matches 1'),
        ({"numaNodes": [0]}, "numaNodes wants 0; this is 1"),
        ({"vendors": [f"800{i}" for i in range(9)]}, "vendors wants 8000, 8001, 8002, 8003 or 5 more; this is 15b3"),
    ],
)
def test_each_key(asked: dict[str, Any], text: str) -> None:
    """One key: the entry that matches and what it matches, or what is wanted and what is there."""
    assert reason(asked) == text


def test_keys_are_joined_by_and() -> None:
    """Every key must match; the first that doesn't is the reason."""
    assert reason({"vendors": ["15b3"], "linkTypes": ["ether"]}) == (
        'selected: vendors "15b3" matches 15b3; linkTypes "ether" matches ether'
    )
    assert reason({"vendors": ["15b3"], "linkTypes": ["ib"]}) == "linkTypes wants infiniband; this is ether"


def test_interfaces_are_names_altnames_and_masters() -> None:
    """Any interface of the device counts: its names, alternative names, the bond above; never a representor."""
    device = replace(
        HCA,
        netdevs=(
            NetDevice(name="58609951635cbfa", is_representor=True),
            NetDevice(name="bond0", is_master=True),
            NetDevice(name="ens8f1", altnames=("enp94s0f0np0",), master="bond0"),
            NetDevice(name="ens8f2", master="team1"),
        ),
    )
    for name in ("bond0", "ens8f1", "enp94s0f0np0", "ens8f2", "team1"):
        assert reason({"ifNames": [name]}, device) == f'selected: ifNames "{name}" matches {name}'
    assert reason({"ifNames": ["5860*"]}, device) == (
        "ifNames wants 5860*; its interfaces are bond0, ens8f1, ens8f2, enp94s0f0np0 and 1 more"
    )


@pytest.mark.parametrize(
    ("asked", "device", "text"),
    [
        ({"ifNames": ["ib0"]}, replace(HCA, netdevs=None), "ifNames wants ib0; its network interfaces can't be told"),
        ({"ifNames": ["ib0"]}, replace(HCA, netdevs=()), "ifNames wants ib0; it has no network interface"),
        ({"linkTypes": ["ib"]}, replace(HCA, ports=()), "linkTypes wants infiniband; its link type can't be told"),
        (
            {"vendors": ["15b3"]},
            replace(HCA, pci=replace(PF, vendor=None)),
            "vendors wants 15b3; its vendor id can't be told",
        ),
        (
            {"deviceIDs": ["1"]},
            replace(HCA, pci=replace(PF, device=None)),
            "deviceIDs wants 0001; its device id can't be told",
        ),
        ({"drivers": ["a"]}, replace(HCA, pci=replace(PF, driver=None)), "drivers wants a; its driver can't be told"),
        (
            {"numaNodes": [0]},
            replace(HCA, pci=replace(PF, numa_node=None)),
            "numaNodes wants 0; its NUMA node can't be told",
        ),
        ({"vendors": ["15b3"]}, replace(HCA, pci=None), "vendors wants 15b3; it has no PCI function"),
        (
            {"rootDevices": ["5e:00.0"]},
            replace(HCA, pci=None),
            "rootDevices wants 0000:5e:00.0; it has no PCI function",
        ),
        (
            {"pfNames": ["ens1"]},
            replace(VF_HCA, pf_netdevs=()),
            ("pfNames wants ens1; the interface of its physical function can't be told"),
        ),
    ],
)
def test_unknown_attributes_match_nothing(asked: dict[str, Any], device: RdmaDevice, text: str) -> None:
    """What can't be told is said to be so; the device is out of this resource only."""
    assert reason(asked, device) == text


@pytest.mark.parametrize(
    ("entry", "pf", "vf", "sf"),
    [
        ("ens1f0np0", True, True, True),
        ("ens*", True, True, True),
        ("ens2f0np0", False, False, False),
        ("ens1f0np0#0-3", False, True, False),
        ("ens1f0np0#0,2", False, True, False),
        ("ens1f0np0#3-90", False, False, True),
        ("ens*#2,88", False, True, True),
        ("ens1f0np0#0,1", False, False, False),
    ],
)
def test_pf_names(entry: str, pf: bool, vf: bool, sf: bool) -> None:
    """Without `#`: the function and all below it; with `#`: only VFs by index and SFs by sfnum."""
    asked = resource({"pfNames": [entry]})
    assert [selectors.match(asked, device).selected for device in (HCA, VF_HCA, SF_HCA)] == [pf, vf, sf]


@pytest.mark.parametrize(
    ("entry", "pf", "vf", "sf"),
    [
        ("5e:00.0", True, True, True),
        ("0000:5e:00.4", False, False, False),
        ("0000:5e:00.0#2", False, True, False),
        ("0000:5E:00.0#88", False, False, True),
    ],
)
def test_root_devices(entry: str, pf: bool, vf: bool, sf: bool) -> None:
    """The same by the PCI address of the physical function; a VF's own address is for pciAddresses."""
    asked = resource({"rootDevices": [entry]})
    assert [selectors.match(asked, device).selected for device in (HCA, VF_HCA, SF_HCA)] == [pf, vf, sf]


def test_reasons_tell_the_function() -> None:
    """A reason says which function it looked at."""
    asked = {"pfNames": ["ens1f0np0#0"]}
    assert reason(asked, HCA) == "pfNames wants ens1f0np0#0; this is ens1f0np0 itself"
    assert reason(asked, VF_HCA) == "pfNames wants ens1f0np0#0; this is VF 2 of ens1f0np0"
    assert reason(asked, SF_HCA) == "pfNames wants ens1f0np0#0; this is SF 88 of ens1f0np0"
    assert reason({"pfNames": ["ens1f0np0#2"]}, VF_HCA) == 'selected: pfNames "ens1f0np0#2" matches VF 2 of ens1f0np0'
    nameless = replace(SF_HCA, auxiliary=Auxiliary(name="mlx5_core.sf.4"))
    assert reason({"rootDevices": ["5e:00.0#1"]}, nameless) == (
        "rootDevices wants 0000:5e:00.0#1; this is a SF of 0000:5e:00.0"
    )


def test_vf_whose_pf_is_not_visible() -> None:
    """Inside a VM a VF is a function of its own: its own names match, no index does, nothing crashes (S3)."""
    device = replace(HCA, pci=replace(VF, pf=None, vf_index=None))
    assert reason({"pfNames": ["ens1f0np0"]}, device).startswith("selected")
    assert reason({"rootDevices": ["5e:00.4"]}, device).startswith("selected")
    assert reason({"pfNames": ["ens1f0np0#0-9"]}, device) == "pfNames wants ens1f0np0#0-9; this is ens1f0np0 itself"


def test_any_port_decides_the_link_type() -> None:
    """A card with one InfiniBand and one Ethernet port is both."""
    device = replace(HCA, ports=(IB, ETHER))
    assert reason({"linkTypes": ["ib"]}, device).startswith("selected")
    assert reason({"linkTypes": ["eth"]}, device).startswith("selected")
    assert reason({"linkTypes": ["unknown"]}, device) == "linkTypes wants unknown; this is ether and infiniband"


@pytest.mark.parametrize(
    "asked",
    [
        {"drivers": ["rdma_rxe"]},
        {"rdmaDevices": ["rxe*"]},
        {"ifNames": ["eth0"]},
        {"drivers": ["*"], "linkTypes": ["roce"]},
    ],
)
def test_software_devices_where_named(asked: dict[str, Any]) -> None:
    """drivers, rdmaDevices and ifNames name a software device."""
    assert reason(asked, RXE).startswith("selected: ")


def test_software_devices_only_where_named() -> None:
    """Other selectors never take a software device, although its link type would match (D2)."""
    text = "is a software device (rdma_rxe); name it with drivers, rdmaDevices or ifNames"
    assert reason({"linkTypes": ["ether"]}, RXE) == text
    assert reason({"vendors": ["15b3"]}, RXE) == text
    assert reason({"linkTypes": ["ether"]}, replace(RXE, software=None)) == (
        "is a virtual device; name it with drivers, rdmaDevices or ifNames"
    )
    assert reason({"drivers": ["mlx5_core"]}, RXE) == "drivers wants mlx5_core; this is rdma_rxe"
    assert reason({"ifNames": ["eth0"], "vendors": ["15b3"]}, RXE) == "vendors wants 15b3; it has no PCI function"


def test_software_device_below_a_nic() -> None:
    """On kernels up to 5.10 rxe hangs under its NIC's PCI function; the NIC's driver isn't its own."""
    device = replace(RXE, is_virtual=False, pci=PF)
    assert reason({"vendors": ["15b3"]}, device).startswith("is a software device")
    assert reason({"drivers": ["mlx5_core"]}, device) == "drivers wants mlx5_core; this is rdma_rxe"
    assert reason({"drivers": ["rdma_rxe"]}, device).startswith("selected")


def test_management_functions() -> None:
    """NVSwitch management functions are out unless asked for; a selector that doesn't match comes first (D9)."""
    device = replace(HCA, pci=replace(PF, is_management=True))
    asked = {"vendors": ["15b3"]}
    assert reason(asked, device) == (
        "is an NVSwitch management function (SW_MNG in its VPD); set includeManagement to use it"
    )
    assert reason(asked, device, includeManagement=True) == 'selected: vendors "15b3" matches 15b3'
    assert reason({"vendors": ["8086"]}, device) == "vendors wants 8086; this is 15b3"


@pytest.mark.parametrize(
    ("exclude", "text"),
    [
        ({"ifNames": ["ens*"]}, 'excluded: ifNames "ens*" matches ens1f0np0'),
        ({"devices": ["101d"]}, 'excluded: deviceIDs "101d" matches 101d'),
        ({"numaNodes": [0], "rdmaDevices": ["mlx5_1"]}, 'excluded: rdmaDevices "mlx5_1" matches mlx5_1'),
        ({"ifNames": ["eth*"], "numaNodes": [0]}, 'selected: vendors "15b3" matches 15b3'),
        ({"vendors": []}, 'selected: vendors "15b3" matches 15b3'),
        ({}, 'selected: vendors "15b3" matches 15b3'),
    ],
)
def test_exclude_is_joined_by_or(exclude: dict[str, Any], text: str) -> None:
    """Any entry of any list leaves a device out; empty lists leave out nothing."""
    assert reason({"vendors": ["15b3"]}, exclude=exclude) == text


def test_exclude_of_an_unknown_attribute() -> None:
    """A device whose interfaces can't be told isn't excluded by them."""
    device = replace(HCA, netdevs=None)
    assert reason({"vendors": ["15b3"]}, device, exclude={"ifNames": ["*"]}).startswith("selected")


NUMBERS = st.sampled_from([None, 0, 1])
DEVICES = st.builds(
    RdmaDevice,
    name=st.sampled_from(["mlx5_0", "mlx5_1", "rxe0"]),
    pci=st.none()
    | st.builds(
        PciFunction,
        address=st.sampled_from(["0000:00:00.0", "10000:01:00.1"]),
        sys_path=st.just("devices/x"),
        vendor=st.sampled_from([None, "15b3", "0000"]),
        device=st.sampled_from([None, "1021"]),
        driver=st.sampled_from([None, "mlx5_0", "ib0"]),
        numa_node=NUMBERS,
        pf=st.sampled_from([None, "0000:00:00.0"]),
        vf_index=NUMBERS,
        is_management=st.booleans(),
    ),
    auxiliary=st.none() | st.builds(Auxiliary, name=st.just("mlx5_core.sf.1"), sfnum=NUMBERS),
    software=st.sampled_from([None, "rdma_rxe"]),
    is_virtual=st.booleans(),
    ports=st.sampled_from([(), (IB,), (IB, ETHER), (Port(number=1),)]),
    netdevs=st.none()
    | st.lists(
        st.builds(
            NetDevice,
            name=st.sampled_from(["ib0", "eth0"]),
            is_representor=st.booleans(),
            master=st.none() | st.just("ib1"),
        ),
        max_size=2,
    ).map(tuple),
    pf_netdevs=st.sampled_from([(), ("ib0",), ("eth0", "ib0")]),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(drawn_selectors(), drawn_selectors(min_keys=0), DEVICES, st.booleans(), st.randoms(use_true_random=False))
def test_order_of_entries_is_free(
    asked: dict[str, Any], exclude: dict[str, Any], device: RdmaDevice, management: bool, order: random.Random
) -> None:
    """Any device gets a verdict with a reason; keys and entries in another order give the same decision."""
    one = selectors.match(resource(asked, exclude=exclude, includeManagement=management), device)
    mixed = resource(_mixed(asked, order), exclude=_mixed(exclude, order), includeManagement=management)
    assert selectors.match(mixed, device).selected == one.selected
    assert one.reason


@pytest.mark.slow
@settings(max_examples=60)
@given(drawn_selectors(min_keys=2), DEVICES)
def test_fewer_keys_select_no_less(asked: dict[str, Any], device: RdmaDevice) -> None:
    """AND: what all keys select, each key selects alone, as far as it may name a software device."""
    if selectors.match(resource(asked), device).selected and not (device.is_virtual or device.software):
        for key, entries in asked.items():
            if entries:
                assert selectors.match(resource({key: entries}), device).selected


def _mixed(asked: dict[str, Any], order: random.Random) -> dict[str, Any]:
    keys = list(asked)
    order.shuffle(keys)
    return {key: order.sample(asked[key], len(asked[key])) if asked[key] else asked[key] for key in keys}
