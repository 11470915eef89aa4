# SPDX-License-Identifier: Apache-2.0
"""Configuration and inventory into pools."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdma_plugin.core import pools, together
from rdma_plugin.core.model import CharKind, Inventory, NetnsMode, PortState, RdmaDevice
from rdma_plugin.core.pool import Pool, sort_nodes
from tests.core.values import BROKEN, char, config, hca, node, rdma_cm


def build(inventory: Inventory, resource: dict[str, Any] | None = None, before: Pool | None = None) -> Pool:
    """Build the one pool of a configuration."""
    previous = {before.resource: before} if before else {}
    (pool,) = pools.build(config(resource or {}), inventory, previous)
    return pool


def test_slots_are_numbered_and_give_every_hca() -> None:
    """Slots "0".."n-1" of rdmaHcaMax, healthy, with the NUMA nodes of the pool's HCAs; nodes sorted by number."""
    pool = build(node(hca(10, numa_node=1), hca(2), hca(3, numa_node=None)))
    assert [slot.id for slot in pool.slots] == ["0", "1", "2"]
    assert all(slot.is_healthy and slot.numa_nodes == (0, 1) for slot in pool.slots)
    assert [node.name for node in pool.nodes] == ["rdma_cm", "uverbs2", "uverbs3", "uverbs10"]
    assert pool.reason == "3 HCAs: mlx5_10, mlx5_2, mlx5_3"
    assert pool.hint is None


@pytest.mark.parametrize(
    ("resource", "numa_nodes"), [({}, (1,)), ({"topology": "auto"}, (1,)), ({"topology": "off"}, ())]
)
def test_topology_can_be_switched_off(resource: dict[str, Any], numa_nodes: tuple[int, ...]) -> None:
    """`topology: off` gives no NUMA hint."""
    assert build(node(hca(0, numa_node=1)), resource).slots[0].numa_nodes == numa_nodes


def test_unknown_numa_node_gives_no_hint() -> None:
    """-1 in sysfs is unknown here and never reaches the kubelet."""
    assert build(node(hca(0, numa_node=None))).slots[0].numa_nodes == ()


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (None, ["rdma_cm", "uverbs0"]),
        (["uverbs"], ["uverbs0"]),
        (["uverbs", "rdma_cm", "umad", "issm"], ["issm0", "rdma_cm", "umad0", "uverbs0"]),
    ],
)
def test_char_devices_are_what_was_asked_for(wanted: list[str] | None, names: list[str]) -> None:
    """By default a pod gets uverbs and rdma_cm; umad and issm only where asked for."""
    pool = build(node(hca(0)), {"charDevices": wanted} if wanted else {})
    assert [node.name for node in pool.nodes] == names


@pytest.mark.parametrize(
    ("inventory", "kind", "hint"),
    [
        (node(hca(0), rdma_cm=None), "rdma_cm", "modprobe rdma_ucm"),
        (node(hca(0, kinds=(CharKind.UVERBS,))), "umad", "modprobe ib_umad"),
        (node(hca(0, kinds=(CharKind.UVERBS,))), "issm", "take issm out of charDevices"),
    ],
)
def test_absent_optional_node_is_a_problem_not_a_zero(inventory: Inventory, kind: str, hint: str) -> None:
    """Only uverbs is essential: the slots stay, the lack is said with what to do."""
    pool = build(inventory, {"charDevices": ["uverbs", kind]})
    assert pool.healthy == 3
    (problem,) = pool.problems
    assert f"rdma/a: pods get no {kind} node" in problem.what
    assert hint in problem.hint


def test_broken_rdma_cm_is_left_out_and_said() -> None:
    """A node that isn't what sysfs promises isn't given; its own problem is stated."""
    pool = build(node(hca(0), rdma_cm=rdma_cm(BROKEN)))
    assert [node.name for node in pool.nodes] == ["uverbs0"]
    assert pool.problems == (BROKEN,)


def test_nothing_selected_says_why_and_what_there_is() -> None:
    """Zero slots with the failed selector and the names that this node has."""
    pool = build(node(hca(0), hca(1)), {"selectors": {"ifNames": ["ibs108"]}})
    assert pool.slots == ()
    assert "ifNames" in pool.reason
    assert "(2 of 2)" in pool.reason
    assert "ib0, ib1" in pool.hint if pool.hint else False


def test_node_without_rdma_says_so() -> None:
    """No device at all: zero, and what to look at."""
    pool = build(node(rdma_cm=None))
    assert (len(pool.slots), pool.reason) == (0, "the node has no RDMA device")
    assert pool.hint is not None
    assert "lspci" in pool.hint


def test_zero_slots_configured_is_said() -> None:
    """Offering zero slots is allowed and never a riddle."""
    pool = build(node(hca(0)), {"rdmaHcaMax": 0})
    assert (len(pool.slots), pool.reason) == (0, "rdmaHcaMax is 0, so nothing is offered")


def test_exclusive_netns_mode_offers_nothing() -> None:
    """At start in exclusive mode: zero with the reason."""
    pool = build(node(hca(0), netns_mode=NetnsMode.EXCLUSIVE))
    assert pool.slots == ()
    assert "exclusive" in pool.reason
    assert "rdma system set netns shared" in (pool.hint or "")


@pytest.mark.parametrize(
    "later",
    [node(), node(hca(0), netns_mode=NetnsMode.EXCLUSIVE), node(hca(0, kinds=()))],
    ids=["vanished", "exclusive", "no-uverbs"],
)
def test_offered_slots_stay_and_turn_unhealthy(later: Inventory) -> None:
    """Once offered, ids stay (the kubelet's checkpoint has them) while the HCA can't be used; and they come back."""
    before = build(node(hca(0)))
    pool = build(later, before=before)
    assert [slot.id for slot in pool.slots] == ["0", "1", "2"]
    assert pool.healthy == 0
    assert pool.hint
    assert build(node(hca(0)), before=pool).healthy == 3


def test_hca_without_uverbs_at_start_has_unhealthy_slots() -> None:
    """Present but unusable: the slots are there, unhealthy, with the reason."""
    pool = build(node(hca(0, uverbs_problem=BROKEN)))
    assert (len(pool.slots), pool.healthy) == (3, 0)
    assert "mlx5_0: it is a plain file" in pool.reason


def test_sub_device_without_uverbs_is_out() -> None:
    """A matching device without any uverbs, beside one that has it (ConnectX-8 smi1), doesn't count, whatever the policy."""
    smi = replace(hca(1, kinds=(CharKind.UMAD,)), is_sub_device=True)
    pool = build(node(hca(0), smi), {"health": "all"})
    assert [member.device for member in pool.members] == ["mlx5_0"]
    assert pool.healthy == 3
    assert "no uverbs device of its own" in pool.verdicts[1].reason


@pytest.mark.parametrize(
    ("health", "states", "healthy"),
    [
        ("any", ["ACTIVE", "DOWN"], True),
        ("any", ["DOWN", "INIT"], False),
        ("all", ["ACTIVE", "DOWN"], False),
        ("all", ["ACTIVE", "ACTIVE_DEFER"], True),
        ("present", ["DOWN", "DOWN"], True),
        ("any", [None], False),
    ],
)
def test_health_policies(health: str, states: list[str | None], healthy: bool) -> None:
    """any: one active HCA is enough; all: every one; present: port states don't matter."""
    devices = [hca(index, state=PortState(state) if state else None) for index, state in enumerate(states)]
    pool = build(node(*devices), {"health": health})
    assert len(pool.slots) == 3
    assert pool.healthy == (3 if healthy else 0)
    assert healthy or "mlx5_" in pool.reason
    if "DOWN" in states and health != "present":
        assert "port 1 is DOWN" in pool.reason
        assert pool.hint


def test_present_still_needs_a_uverbs_node() -> None:
    """`health: present` ignores the port, not a dead node."""
    assert build(node(hca(0, uverbs_problem=BROKEN)), {"health": "present"}).healthy == 0


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("rdma/hca_shared_devices_a", "RDMA_HCA_SHARED_DEVICES_A"),
        ("example.com/nic-1.x", "EXAMPLE_COM_NIC_1_X"),
        ("3com.com/a", "_3COM_COM_A"),
    ],
)
def test_environment_name(resource: str, name: str) -> None:
    """Upper case, `_` for everything else, never a digit first."""
    assert pools.env_name(resource) == name


def test_nccl_env_of_two_resources_is_a_problem() -> None:
    """A container that asks for both would keep one value only."""
    both = pools.build(config({"ncclEnv": True}, {"resourceName": "b", "ncclEnv": True}), node(hca(0)), {})
    assert [[problem.what for problem in pool.problems] for pool in both] == [
        ["rdma/a: NCCL_IB_HCA is also set by rdma/b"],
        ["rdma/b: NCCL_IB_HCA is also set by rdma/a"],
    ]
    one = pools.build(config({"ncclEnv": True}, {"resourceName": "b"}), node(hca(0)), {})
    assert all(not pool.problems for pool in one)


def test_shared_hca_is_said_once() -> None:
    """An HCA in several resources is allowed, and stated once for all of them."""
    three = pools.build(config({}, {"resourceName": "b"}, {"resourceName": "c"}), node(hca(0), hca(1)), {})
    (problem,) = together.overlaps(three)
    assert problem.what == "mlx5_0, mlx5_1: in 3 resources: rdma/a, rdma/b, rdma/c"


devices_strategy = st.lists(
    st.builds(
        hca,
        st.integers(0, 40),
        state=st.sampled_from([*PortState, None]),
        numa_node=st.sampled_from([None, 0, 1]),
        kinds=st.sampled_from([(), (CharKind.UVERBS,), (CharKind.UVERBS, CharKind.UMAD)]),
        uverbs_problem=st.sampled_from([None, BROKEN]),
    ),
    max_size=6,
    unique_by=lambda device: device.name,
)


@given(devices_strategy, st.sampled_from(["any", "all", "present"]), st.integers(0, 5))
def test_build_keeps_its_promises(devices: list[RdmaDevice], health: str, slots: int) -> None:
    """Deterministic; nodes are usable nodes of selected HCAs; a pool short of healthy slots has a reason and a hint."""
    resource = {"health": health, "rdmaHcaMax": slots}
    inventory = node(*devices)
    pool = build(inventory, resource)
    assert pool == build(inventory, resource)
    assert all(node.is_usable for node in pool.nodes)
    selected = {verdict.device for verdict in pool.verdicts if verdict.selected}
    assert {member.device for member in pool.members} == selected
    assert len(pool.verdicts) == len(devices)
    assert pool.reason
    if not pool.slots or pool.healthy < len(pool.slots):
        assert pool.hint
    assert len(build(node(), resource, before=pool).slots) == len(pool.slots)


def test_device_that_lost_its_uverbs_stays_with_unhealthy_slots() -> None:
    """Without its uverbs entry a matching HCA is unusable, not out: the slots are there and say so (design.md, 8)."""
    pool = build(node(hca(0, kinds=(CharKind.UMAD,)), hca(1)), {"selectors": {"rdmaDevices": ["mlx5_0"]}})
    assert (len(pool.slots), pool.healthy) == (3, 0)
    assert "mlx5_0: it has no uverbs device" in pool.reason


def test_variables_that_overwrite_each_other_are_said() -> None:
    """`a-b` and `a_b` make the same variable."""
    both = pools.build(config({"resourceName": "a-b"}, {"resourceName": "a_b"}), node(hca(0)), {})
    assert [problem.what for problem in both[0].problems] == ["rdma/a-b: RDMA_A_B is also set by rdma/a_b"]
    off = pools.build(config({"resourceName": "a-b"}, {"resourceName": "a_b", "env": False}), node(hca(0)), {})
    assert not off[0].problems


def test_list_that_would_be_too_long_goes_without_hints() -> None:
    """100 000 slots with eight NUMA nodes each exceed what older kubelets receive: said, and offered without hints."""
    inventory = node(*(hca(index, numa_node=index) for index in range(8)))
    pool = build(inventory, {"rdmaHcaMax": 100_000})
    assert len(pool.slots) == 100_000
    assert pool.slots[0].numa_nodes == ()
    assert any("no NUMA hints" in problem.what for problem in pool.problems)
    assert build(inventory, {"rdmaHcaMax": 1000}).slots[0].numa_nodes == tuple(range(8))


def test_numbers_sort_as_numbers() -> None:
    """uverbs2 comes before uverbs10."""
    assert [item.name for item in sort_nodes([char(CharKind.UVERBS, 10), char(CharKind.UVERBS, 2)])] == [
        "uverbs2",
        "uverbs10",
    ]
