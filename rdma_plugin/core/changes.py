# SPDX-License-Identifier: Apache-2.0
"""What differs between two states of a node, as log lines: one for each change of state, none for a steady node."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from rdma_plugin.core import explain
from rdma_plugin.core.model import Inventory, Problem
from rdma_plugin.core.pool import Pool


class Severity(Enum):
    """How much the operator should care; the values are the standard library's log levels."""

    INFO = 20
    WARNING = 30


@dataclass(frozen=True, slots=True)
class Change:
    """One log line: a constant event text and its fields."""

    severity: Severity
    event: str
    fields: tuple[tuple[str, object], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the plugin knows and promises at one moment."""

    inventory: Inventory
    pools: tuple[Pool, ...]


def changes(before: View | None, after: View) -> Iterator[Change]:
    """Yield a line for each resource, device and problem that isn't as it was; `before` is None at the first look."""
    yield from _resources(before, after)
    yield from _devices(before, after)
    old = set(explain.all_problems(before.inventory, before.pools)) if before else set[Problem]()
    new = set(explain.all_problems(after.inventory, after.pools))
    for problem in sorted(new - old):
        fields = (("what", problem.what), ("why", problem.why), ("hint", problem.hint))
        yield Change(Severity.WARNING, "problem", fields)
    solved = {problem.what for problem in old - new} - {problem.what for problem in new}
    for what in sorted(solved):
        yield Change(Severity.INFO, "problem solved", (("what", what),))


def _resources(before: View | None, after: View) -> Iterator[Change]:
    old = {pool.resource: _summary(pool) for pool in before.pools} if before else {}
    for pool in after.pools:
        summary = _summary(pool)
        if old.get(pool.resource) == summary:
            continue
        is_short = not pool.slots or pool.healthy < len(pool.slots)
        yield Change(Severity.WARNING if is_short else Severity.INFO, "resource changed", summary)


def _summary(pool: Pool) -> tuple[tuple[str, object], ...]:
    fields: list[tuple[str, object]] = [
        ("resource", pool.resource),
        ("slots", len(pool.slots)),
        ("healthy", pool.healthy),
        ("devices", tuple(member.device for member in pool.members)),
        ("reason", pool.reason),
    ]
    return (*fields, ("hint", pool.hint)) if pool.hint else tuple(fields)


def _devices(before: View | None, after: View) -> Iterator[Change]:
    old = _uses(before) if before else {}
    new = _uses(after)
    for device, (resources, reasons) in new.items():
        if before is not None and old.get(device, ((), ()))[0] == resources and device in old:
            continue
        event = "device used" if resources else "device not used"
        yield Change(
            Severity.INFO, event, (("device", device), ("resources", resources), ("reason", "; ".join(reasons)))
        )
    for device in old.keys() - new.keys():
        yield Change(Severity.INFO, "device gone", (("device", device),))


def _uses(view: View) -> dict[str, tuple[tuple[str, ...], tuple[str, ...]]]:
    """Map each device to the resources that use it, and to the distinct reasons."""
    uses: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {}
    for device in view.inventory.devices:
        verdicts = [verdict for pool in view.pools for verdict in pool.verdicts if verdict.device == device.name]
        resources = tuple(verdict.resource for verdict in verdicts if verdict.selected)
        reasons = dict.fromkeys(verdict.reason for verdict in verdicts if verdict.selected or not resources)
        uses[device.name] = (resources, tuple(reasons))
    return uses
