# SPDX-License-Identifier: Apache-2.0
"""A pool as a value: slots, the HCAs behind them, and the stated reason. `pools.build` makes them."""

from collections.abc import Iterable
from dataclasses import dataclass

from rdma_plugin.core import parse
from rdma_plugin.core.model import CharKind, CharNode, Problem
from rdma_plugin.core.selectors import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One share of a pool; the kubelet calls it Device."""

    id: str
    """`"0"` to `"n-1"`: the same after every restart, because the kubelet's checkpoint keeps it (K8)."""
    is_healthy: bool
    numa_nodes: tuple[int, ...] = ()
    """Hint for the kubelet's topology manager, sorted; empty = no hint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One HCA of a pool and what a pod gets of it."""

    device: str
    """The ibdev name."""
    nodes: tuple[CharNode, ...]
    """The usable nodes of the wanted kinds; without a uverbs node the HCA gives nothing."""
    is_healthy: bool
    """By the resource's `health` policy, as far as this HCA goes."""
    reason: str
    """Why it is healthy or not, in one phrase."""
    numa_node: int | None = None

    @property
    def is_usable(self) -> bool:
        """True if a pod can open this HCA: its uverbs node is a character device of the right number."""
        return any(node.kind is CharKind.UVERBS for node in self.nodes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """All that the plugin promises for one resource at one moment."""

    resource: str
    """Full name, `rdma/hca_shared_devices_a`."""
    slots: tuple[Slot, ...] = ()
    members: tuple[Member, ...] = ()
    """The selected HCAs by name."""
    common_nodes: tuple[CharNode, ...] = ()
    """Nodes that belong to no HCA (rdma_cm)."""
    env_name: str | None = None
    """Environment variable that tells a container its HCAs; None if switched off."""
    sets_nccl_env: bool = False
    """True if NCCL_IB_HCA is set too."""
    verdicts: tuple[Verdict, ...] = ()
    """One for each device of the node, by device name."""
    problems: tuple[Problem, ...] = ()
    """What is less than configured, sorted."""
    reason: str
    """Why the pool has the slots that it has, in one sentence."""
    hint: str | None = None
    """What to do; None if there is nothing to do."""

    @property
    def nodes(self) -> tuple[CharNode, ...]:
        """Every node that a container may get, sorted by path."""
        return sort_nodes([node for member in self.members for node in member.nodes] + list(self.common_nodes))

    @property
    def healthy(self) -> int:
        """Number of healthy slots."""
        return sum(slot.is_healthy for slot in self.slots)


def sort_nodes(nodes: Iterable[CharNode]) -> tuple[CharNode, ...]:
    """Return the nodes once each, by path, numbers compared as numbers (V3)."""
    return tuple(sorted({node.path: node for node in nodes}.values(), key=lambda node: parse.natural(node.path)))
