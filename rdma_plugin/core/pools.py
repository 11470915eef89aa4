# SPDX-License-Identifier: Apache-2.0
"""Configuration and inventory into pools: what each resource offers, and why it offers just that.

`build` is pure and deterministic. A pool that had slots keeps their ids when its HCAs vanish (H4): the kubelet's
checkpoint and running pods refer to them. Only the configuration shrinks a list.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from rdma_plugin.core import parse, selectors, together
from rdma_plugin.core.config import Config, Resource
from rdma_plugin.core.model import CharKind, Inventory, NetnsMode, Problem, RdmaDevice
from rdma_plugin.core.pool import Member, Pool, Slot, sort_nodes
from rdma_plugin.core.selectors import Verdict

_MODULES = {
    CharKind.UVERBS: "ib_uverbs",
    CharKind.UMAD: "ib_umad",
    CharKind.ISSM: "ib_umad",
    CharKind.RDMA_CM: "rdma_ucm",
}
MAX_LIST_BYTES = 3 * 1024 * 1024
"""Kubelets up to 1.33 receive 4 MiB (N1); this leaves room."""
_LOOK = "compare the selectors with `rdma-plugin discover`; `rdma-plugin explain` gives the reason for each device"


class _Judgement(NamedTuple):
    reason: str
    hint: str | None
    is_healthy: bool = False


def env_name(resource: str) -> str:
    """Name the environment variable of a resource: `rdma/hca-a` gives `RDMA_HCA_A`."""
    name = "".join(char if char.isascii() and char.isalnum() else "_" for char in resource).upper()
    return f"_{name}" if name[0].isdigit() else name


def build(config: Config, inventory: Inventory, previous: Mapping[str, Pool]) -> tuple[Pool, ...]:
    """Return one pool for each resource of the configuration, in its order.

    `previous` holds the pools published last, by resource name; empty at the start of the process.
    """
    pools = tuple(_build_one(resource, inventory, previous.get(resource.full_name)) for resource in config.config_list)
    return together.with_shared_problems(pools)


def _build_one(resource: Resource, inventory: Inventory, before: Pool | None) -> Pool:
    verdicts = tuple(_verdict(resource, device) for device in inventory.devices)
    chosen = tuple(device for device, verdict in zip(inventory.devices, verdicts, strict=True) if verdict.selected)
    members = tuple(_member(resource, device) for device in chosen)
    wanted = resource.char_devices
    rdma_cm = inventory.rdma_cm
    pool = Pool(
        resource=resource.full_name,
        members=members,
        common_nodes=(rdma_cm,) if rdma_cm and rdma_cm.is_usable and CharKind.RDMA_CM in wanted else (),
        env_name=env_name(resource.full_name) if resource.env else None,
        sets_nccl_env=resource.nccl_env,
        verdicts=verdicts,
        problems=_problems(resource, chosen, inventory),
        reason="",
    )
    judgement = _judge(resource, inventory, pool)
    had_slots = before is not None and bool(before.slots)
    is_offered = bool(chosen) and inventory.netns_mode is not NetnsMode.EXCLUSIVE
    count = resource.rdma_hca_max if is_offered or had_slots else 0
    numa_nodes: tuple[int, ...] = ()
    if resource.topology == "auto":
        numa_nodes = tuple(sorted({member.numa_node for member in members if member.numa_node is not None}))
    if _list_bytes(count, numa_nodes) > MAX_LIST_BYTES:
        problem = Problem(
            what=f"{resource.full_name}: no NUMA hints",
            why=f"with them, the list of {count} slots on {len(numa_nodes)} NUMA nodes is larger than older kubelets receive",
            hint="lower rdmaHcaMax, or set `topology: off` to have it without this remark",
        )
        pool, numa_nodes = replace(pool, problems=tuple(sorted({*pool.problems, problem}))), ()
    slots = tuple(Slot(id=str(i), is_healthy=judgement.is_healthy, numa_nodes=numa_nodes) for i in range(count))
    return replace(pool, slots=slots, reason=judgement.reason, hint=judgement.hint)


def _list_bytes(count: int, numa_nodes: tuple[int, ...]) -> int:
    """Return how long the encoded list may be at most: id, `Unhealthy`, and for each node a message with a number."""
    return count * (2 + 2 + len(str(count)) + 11 + (2 + 5 * len(numa_nodes) if numa_nodes else 0))


def _verdict(resource: Resource, device: RdmaDevice) -> Verdict:
    verdict = selectors.match(resource, device)
    if verdict.selected and device.is_sub_device:
        why = "matches, but has no uverbs device of its own (a management sub-device), so no pod could use it"
        return replace(verdict, selected=False, reason=why)
    return verdict


def _member(resource: Resource, device: RdmaDevice) -> Member:
    nodes = sort_nodes(node for node in device.char_nodes if node.kind in resource.char_devices and node.is_usable)
    uverbs = [node for node in device.char_nodes if node.kind is CharKind.UVERBS]
    active = [port for port in device.ports if port.is_active]
    if not any(node.is_usable for node in uverbs):
        broken = next((node.problem for node in uverbs if node.problem), None)
        is_healthy, reason = False, broken.why if broken else "it has no uverbs device; is ib_uverbs loaded?"
    elif active:
        is_healthy, reason = True, f"port {active[0].number} is {active[0].state}"
    else:
        states = (
            ", ".join(f"port {port.number} is {port.state or 'unknown'}" for port in device.ports) or "no port is known"
        )
        is_healthy, reason = resource.health == "present", states
    return Member(device=device.name, nodes=nodes, is_healthy=is_healthy, reason=reason, numa_node=device.numa_node)


def _judge(resource: Resource, inventory: Inventory, pool: Pool) -> _Judgement:
    """Say why the pool is as it is: what stands against offering anything first, then the members' health."""
    if inventory.netns_mode is NetnsMode.EXCLUSIVE:
        why = "the RDMA subsystem is in exclusive network namespace mode, in which pods can't share the host's HCAs"
        return _Judgement(
            why, "set it to shared: `rdma system set netns shared`, before any other network namespace exists"
        )
    if not inventory.devices:
        hint = "check `lspci` for the card and load its driver (mlx5: `modprobe mlx5_ib`)"
        return _Judgement("the node has no RDMA device", hint)
    if not pool.members:
        return _why_nothing(pool.verdicts, inventory)
    if resource.rdma_hca_max == 0:
        return _Judgement("rdmaHcaMax is 0, so nothing is offered", "set rdmaHcaMax to the number of slots to offer")
    return _weigh(resource, pool.members)


def _weigh(resource: Resource, members: tuple[Member, ...]) -> _Judgement:
    bad = [member for member in members if not member.is_healthy]
    names = ", ".join(member.device for member in members)
    text = f"{len(members)} HCA{'s' if len(members) > 1 else ''}: {names}"
    if not bad:
        return _Judgement(text, None, is_healthy=True)
    faults = "; ".join(f"{member.device}: {member.reason}" for member in bad)
    if not any(member.is_usable for member in members):
        hint = (
            "load ib_uverbs (`modprobe ib_uverbs`) and look at /dev/infiniband; `rdma-plugin discover` shows each node"
        )
        return _Judgement(f"slots are unhealthy, no selected HCA can be opened: {faults}", hint)
    hint = "check cable, switch port and (InfiniBand) subnet manager; `health: present` ignores the port state"
    if len(bad) < len(members) and resource.health != "all":
        return _Judgement(f"{text}; not healthy: {faults}", hint, is_healthy=True)
    wants = "every HCA healthy" if resource.health == "all" else "a healthy HCA"
    return _Judgement(f"slots are unhealthy, `health: {resource.health}` wants {wants}: {faults}", hint)


def _why_nothing(verdicts: tuple[Verdict, ...], inventory: Inventory) -> _Judgement:
    heads = Counter(verdict.reason.split(";")[0] for verdict in verdicts)
    common = "; ".join(f"{head} ({count} of {len(verdicts)})" for head, count in heads.most_common(3))
    more = f"; and {len(heads) - 3} other reasons" if len(heads) > 3 else ""  # noqa: PLR2004 - as many as a line holds
    netdevs = sorted(
        {net.name for device in inventory.devices for net in device.netdevs or () if not net.is_representor},
        key=parse.natural,
    )
    hint = _LOOK
    if any(head.startswith("ifNames") for head in heads) and netdevs:
        shown = ", ".join(netdevs[:12]) + (", …" if len(netdevs) > 12 else "")  # noqa: PLR2004 - as many as a line holds
        hint = (
            f"the RDMA interfaces of this node are {shown}: correct ifNames (globs may be used), or select by linkTypes"
        )
    return _Judgement(f"no RDMA device is selected: {common}{more}", hint)


def _problems(resource: Resource, chosen: tuple[RdmaDevice, ...], inventory: Inventory) -> tuple[Problem, ...]:
    found = [resource.problem] if resource.problem else []
    for kind in resource.char_devices if chosen else ():
        if kind is CharKind.RDMA_CM:
            if inventory.rdma_cm is None:
                found.append(_lacking(resource, kind, "rdma_ucm isn't loaded"))
            elif inventory.rdma_cm.problem:
                found.append(inventory.rdma_cm.problem)
            continue
        lacking = [device.name for device in chosen if not any(node.kind is kind for node in device.char_nodes)]
        if lacking:
            found.append(_lacking(resource, kind, f"{', '.join(lacking)}: no such device in sysfs"))
        found.extend(
            node.problem for device in chosen for node in device.char_nodes if node.kind is kind and node.problem
        )
    return tuple(sorted(set(found)))


def _lacking(resource: Resource, kind: CharKind, why: str) -> Problem:
    hint = f"`modprobe {_MODULES[kind]}`"
    if kind in (CharKind.UMAD, CharKind.ISSM):
        hint += " if it isn't loaded; some devices have none (EFA, iWARP; issm also VFs and RoCE from Linux 6.11)"
    if kind is not CharKind.UVERBS:
        hint += f"; or take {kind} out of charDevices"
    return Problem(what=f"{resource.full_name}: pods get no {kind} node", why=why, hint=hint)
