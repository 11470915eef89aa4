# SPDX-License-Identifier: Apache-2.0
"""Slot ids into an answer: which nodes and variables a container gets, or why it gets none.

Pure and quick: an Allocate call never waits for discovery. What the nodes are at this moment comes in as `unusable`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rdma_plugin.core import parse
from rdma_plugin.core.errors import AllocationError, AllocationKind
from rdma_plugin.core.model import CharKind, CharNode, Problem
from rdma_plugin.core.pool import Pool, sort_nodes

_SHOWN_CHARACTERS = 40
"""Of an unknown id: gRPC's header that holds the text is bounded, and so is a pod's status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """What one container gets."""

    nodes: tuple[CharNode, ...]
    """Sorted by path, each once, every one a character device when it was checked."""
    env: tuple[tuple[str, str], ...]
    """Names and values, sorted."""
    devices: tuple[str, ...]
    """The HCAs, by ibdev name."""


def allocate(pool: Pool, slot_ids: Iterable[str], unusable: Mapping[str, Problem]) -> Allocation:
    """Answer one container's request.

    `unusable` maps a node's path to what is wrong with it now; such nodes are left out, and an HCA whose uverbs node is
    among them gives nothing. An empty request gives an empty answer.

    Raises:
        AllocationError: a slot id that the pool doesn't have, or no HCA that could be opened.
    """
    ids = list(slot_ids)
    unknown = sorted({slot_id for slot_id in ids if not _has_slot(pool, slot_id)})
    if unknown:
        have = f"{len(pool.slots)} slots, 0 to {len(pool.slots) - 1}" if pool.slots else f"no slots: {pool.reason}"
        shown = ", ".join(slot_id[:_SHOWN_CHARACTERS] for slot_id in unknown[:5])
        text = f"{pool.resource} has no slot {shown}; it has {have}"
        raise AllocationError(AllocationKind.UNKNOWN_SLOT, text)
    if not ids:
        return Allocation(nodes=(), env=(), devices=())
    nodes: list[CharNode] = []
    devices: list[str] = []
    for member in pool.members:
        usable = [node for node in member.nodes if node.path not in unusable]
        if any(node.kind is CharKind.UVERBS for node in usable):
            nodes += usable
            devices.append(member.device)
    if not devices:
        raise AllocationError(AllocationKind.NOTHING_USABLE, _why_not(pool, unusable))
    nodes += [node for node in pool.common_nodes if node.path not in unusable]
    names = ",".join(devices)
    env = {pool.env_name: names} if pool.env_name else {}
    if pool.sets_nccl_env:
        env["NCCL_IB_HCA"] = f"={names}"  # the leading = asks NCCL for exact names
    return Allocation(nodes=sort_nodes(nodes), env=tuple(sorted(env.items())), devices=tuple(devices))


def _has_slot(pool: Pool, slot_id: str) -> bool:
    """Return whether the pool has this slot; its id is its place in the list."""
    place = parse.decimal(slot_id)
    return place is not None and place < len(pool.slots) and pool.slots[place].id == slot_id


def _why_not(pool: Pool, unusable: Mapping[str, Problem]) -> str:
    paths = [node.path for node in pool.nodes if node.path in unusable]
    reasons = "; ".join(f"{unusable[path].what}: {unusable[path].why}" for path in paths[:5]) or pool.reason
    return f"{pool.resource} has no usable HCA now: {reasons}"
