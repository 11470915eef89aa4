# SPDX-License-Identifier: Apache-2.0
"""The real plugin process follows a real kernel: soft-RoCE devices, links, modules and network namespace mode.

Runs in the guest that `make test-guest` boots. Commands are those that an administrator types; what counts is the list
at the kubelet, what a pod gets, and what `explain` says. One plugin process lives through all of it.
"""

import os
import stat
from pathlib import Path

import pytest

from tests.guest import node
from tests.guest.conftest import ALL, ANY, DEADLINE_S, DEVICE, NONE, RAIL, SLOTS, START_S, Plugin, command, timed
from tests.rig.wait import wait_until

ROUNDS = 20
STORM = 10

pytestmark = [pytest.mark.guest, pytest.mark.timeout(240)]


def test_node_without_modules_has_no_slots_and_gets_them_when_a_device_comes(plugin: Plugin) -> None:
    """No RDMA module at all: empty lists and the reason. Modules, link and device come late: slots, with no restart."""
    assert (plugin.kubelet.slots(ANY), plugin.kubelet.slots(RAIL)) == ({}, {})
    assert "no RDMA device" in plugin.explain()["reason"]
    node.load_modules()
    node.add_links()
    plugin.follow("first device", f"rdma link add {DEVICE} type rxe netdev {node.NETDEV}", ALL, deadline_s=START_S)
    assert plugin.kubelet.wait_slots(RAIL, SLOTS, DEADLINE_S) == ALL
    assert plugin.explain()["devices"] == [DEVICE]


def test_discover_shows_the_device(rxe: Plugin) -> None:
    """The device with its interface, port, nodes and driver, and the network namespace mode; no problem is seen."""
    del rxe
    found = command("discover")
    (device,) = found["devices"]
    assert (device["name"], device["netdevs"], device["softwareDriver"]) == (DEVICE, [node.NETDEV], "rdma_rxe")
    (port,) = device["ports"]
    assert (port["number"], port["state"], port["linkType"]) == (1, "ACTIVE", "ether")
    assert {"/dev/infiniband/uverbs0", "/dev/infiniband/umad0"} <= set(device["charDevices"])
    assert (found["rdmaCm"], found["netnsMode"]) == ("/dev/infiniband/rdma_cm", "shared")
    assert (found["problems"], device["problems"]) == ([], [])


def test_altname_selects(rxe: Plugin) -> None:
    """An alternative name longer than an interface's own, which only netlink tells, selects the device."""
    verdict = rxe.explain(RAIL)["verdicts"][DEVICE]
    assert verdict["selected"]
    assert node.ALTNAME in verdict["reason"]


def test_pod_can_open_its_nodes(rxe: Plugin) -> None:
    """What a pod gets are the kernel's own character devices, and they open."""
    seen = rxe.pod_sees(ANY)
    assert seen.pop("RDMA_ANY_RXE") == DEVICE
    assert seen == {"/dev/infiniband/uverbs0": "rw", "/dev/infiniband/rdma_cm": "rw"}
    for path in seen:
        assert stat.S_ISCHR(Path(path).stat().st_mode)
        os.close(os.open(path, os.O_RDWR))


def test_device_goes_and_comes(rxe: Plugin) -> None:
    """`rdma link delete`: the same slots, unhealthy. `rdma link add`: the same slots, healthy. 20 times over."""
    for _ in range(ROUNDS):
        rxe.follow("rdma link delete", f"rdma link delete {DEVICE}", NONE)
        rxe.follow("rdma link add", f"rdma link add {DEVICE} type rxe netdev {node.NETDEV}", ALL)
    rxe.follow("rdma link delete", f"rdma link delete {DEVICE}", NONE)
    assert "no RDMA device" in rxe.explain()["reason"]


def test_rename_reaches_pods(rxe: Plugin) -> None:
    """`rdma dev set name`: nothing changes for the kubelet, and the next pod is told the new name."""
    node.run(f"rdma dev set {DEVICE} name rxe9")
    with timed("rename, to what a pod gets"):
        wait_until(
            lambda: rxe.pod_sees(ANY)["RDMA_ANY_RXE"], DEADLINE_S, "the new name", done=lambda name: name == "rxe9"
        )
    rxe.wait_log("device gone", device=DEVICE)
    assert rxe.kubelet.slots(ANY) == ALL
    assert list(rxe.explain()["verdicts"]) == ["rxe9"]


@pytest.mark.parametrize(("off", "on", "state"), [("down", "up", "DOWN"), ("carrier off", "carrier on", "DOWN")])
def test_link_down_is_unhealthy(rxe: Plugin, off: str, on: str, state: str) -> None:
    """An interface that is set down or loses its carrier (the kernel sends no uevent): unhealthy, with the port's state."""
    rxe.follow(f"link {off}", f"ip link set {node.NETDEV} {off}", NONE)
    assert state in rxe.explain()["reason"]
    rxe.follow(f"link {on}", f"ip link set {node.NETDEV} {on}", ALL)


def test_interface_goes_and_comes(rxe: Plugin) -> None:
    """The interface itself is removed, as when a NIC's driver is unbound: its RDMA device goes along, and comes back."""
    rxe.follow("interface removed", f"ip link delete {node.NETDEV}", NONE)
    assert node.rdma_devices() == []
    node.add_links()
    rxe.follow("device on new interface", f"rdma link add {DEVICE} type rxe netdev {node.NETDEV}", ALL)
    assert rxe.kubelet.wait_slots(RAIL, SLOTS, DEADLINE_S) == ALL


def test_driver_reload(rxe: Plugin) -> None:
    """`modprobe -r` of the driver under the running plugin: the same slots, unhealthy; healthy after the reload."""
    rxe.follow("modprobe -r rdma_rxe", "modprobe -r rdma_rxe", NONE)
    assert "no RDMA device" in rxe.explain()["reason"]
    node.load_modules()
    rxe.follow("device after reload", f"rdma link add {DEVICE} type rxe netdev {node.NETDEV}", ALL)


def test_whole_stack_reload(rxe: Plugin) -> None:
    """Every RDMA module goes, and /dev/infiniband and the class folders with them; the slots return all the same."""
    rxe.follow("modprobe -r of the stack", f"modprobe -r {' '.join(node.UNLOAD)}", NONE)
    assert not Path("/dev/infiniband").exists()
    node.load_modules()
    rxe.follow("device after stack reload", f"rdma link add {DEVICE} type rxe netdev {node.NETDEV}", ALL)
    assert rxe.pod_sees(ANY)["RDMA_ANY_RXE"] == DEVICE


def test_exclusive_netns_mode(rxe: Plugin) -> None:
    """Exclusive mode: unhealthy, with the reason and the command that helps; shared again: healthy."""
    rxe.follow("netns exclusive", "rdma system set netns exclusive", NONE)
    said = rxe.explain()
    assert "exclusive" in said["reason"]
    assert "rdma system set netns shared" in said["hint"]
    rxe.follow("netns shared", "rdma system set netns shared", ALL)


def test_new_char_node_number(rxe: Plugin) -> None:
    """A device that comes back with another uverbs number: pods get the new node, never the one that is another's now."""
    assert "/dev/infiniband/uverbs0" in rxe.pod_sees(RAIL)
    rxe.follow("rdma link delete", f"rdma link delete {DEVICE}", NONE, RAIL)
    node.add_device("other", node.SPARE)
    rxe.follow("rdma link add", f"rdma link add {DEVICE} type rxe netdev {node.NETDEV}", ALL, RAIL)
    seen = rxe.pod_sees(RAIL)
    assert seen == {"/dev/infiniband/uverbs1": "rw", "/dev/infiniband/rdma_cm": "rw", "RDMA_RAIL": DEVICE}
    assert not rxe.explain(RAIL)["verdicts"]["other"]["selected"]


@pytest.mark.parametrize("is_there", [True, False], ids=["there", "gone"])
def test_last_state_counts_after_a_storm(rxe: Plugin, is_there: bool) -> None:
    """A device that goes and comes many times in a row, faster than anybody looks: the list ends as the node does."""
    for _ in range(STORM):
        node.run(f"rdma link delete {DEVICE}")
        node.add_device(DEVICE)
    node.run(f"rdma link delete {DEVICE}")
    if is_there:
        node.add_device("last")  # a name of its own tells the last state from those before
    with timed(f"storm, ends with{'' if is_there else 'out'} device"):
        if is_there:
            rxe.wait_log("resource changed", resource=ANY, healthy=SLOTS, devices=["last"])
        assert rxe.kubelet.wait_slots(ANY, SLOTS if is_there else 0, DEADLINE_S) == (ALL if is_there else NONE)
