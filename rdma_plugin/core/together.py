# SPDX-License-Identifier: Apache-2.0
"""What only the pools of a node together show: HCAs that several share, variables that overwrite each other."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from rdma_plugin.core import parse
from rdma_plugin.core.model import Problem
from rdma_plugin.core.pool import Pool


def with_shared_problems(pools: tuple[Pool, ...]) -> tuple[Pool, ...]:
    """Return the pools, each with a problem for a variable that another one sets too."""
    nccl = [pool.resource for pool in pools if pool.sets_nccl_env]
    names = defaultdict(list)
    for pool in pools:
        if pool.env_name:
            names[pool.env_name].append(pool.resource)
    changed = []
    for pool in pools:
        found = set(pool.problems)
        if pool.sets_nccl_env and len(nccl) > 1:
            found.add(_overwritten(pool.resource, "NCCL_IB_HCA", nccl, "set ncclEnv on one resource only"))
        if pool.env_name and len(names[pool.env_name]) > 1:
            hint = "give them names that differ in more than signs, or set `env: false` on all but one"
            found.add(_overwritten(pool.resource, pool.env_name, names[pool.env_name], hint))
        changed.append(replace(pool, problems=tuple(sorted(found))))
    return tuple(changed)


def _overwritten(resource: str, variable: str, setters: list[str], hint: str) -> Problem:
    others = ", ".join(name for name in setters if name != resource)
    return Problem(
        what=f"{resource}: {variable} is also set by {others}",
        why="a container that asks for both keeps only one of the values",
        hint=hint,
    )


def overlaps(pools: Iterable[Pool]) -> tuple[Problem, ...]:
    """State which HCAs several resources share, once for each group of resources (S5); allowed, slots are shares."""
    owners = defaultdict(list)
    for pool in pools:
        for member in pool.members:
            owners[member.device].append(pool.resource)
    groups = defaultdict(list)
    for device, names in owners.items():
        if len(names) > 1:
            groups[tuple(names)].append(device)
    return tuple(
        Problem(
            what=f"{', '.join(sorted(devices, key=parse.natural))}: in {len(names)} resources: {', '.join(names)}",
            why="their selectors match the same HCAs, which pods of all these resources then share",
            hint="nothing to do if that is meant; else narrow the selectors or use exclude",
        )
        for names, devices in sorted(groups.items())
    )
