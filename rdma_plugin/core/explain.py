# SPDX-License-Identifier: Apache-2.0
"""Values into the JSON documents that `discover --json` and `explain --json` print. Keys are camelCase; unknown is null."""

from collections.abc import Iterable
from typing import TypeAlias

from rdma_plugin.core import together
from rdma_plugin.core.model import Inventory, Problem, RdmaDevice
from rdma_plugin.core.pool import Pool

Json: TypeAlias = "dict[str, Json] | list[Json] | str | int | float | bool | None"


def discovery(inventory: Inventory) -> dict[str, Json]:
    """Describe every RDMA device of the node, selected or not."""
    return {
        "devices": [_device(device) for device in inventory.devices],
        "rdmaCm": inventory.rdma_cm.path if inventory.rdma_cm else None,
        "netnsMode": inventory.netns_mode,
        "problems": _problems(inventory.problems),
    }


def report(inventory: Inventory, pools: tuple[Pool, ...]) -> dict[str, Json]:
    """Say for each resource what it offers and why, and for each device and resource why it is in or out."""
    return {
        "resources": [
            {
                "name": pool.resource,
                "capacity": len(pool.slots),
                "healthy": pool.healthy,
                "devices": [member.device for member in pool.members],
                "reason": pool.reason,
                "hint": pool.hint,
            }
            for pool in pools
        ],
        "verdicts": [
            {
                "device": verdict.device,
                "resource": verdict.resource,
                "selected": verdict.selected,
                "reason": verdict.reason,
            }
            for pool in pools
            for verdict in pool.verdicts
        ],
        "problems": _problems(all_problems(inventory, pools)),
    }


def all_problems(inventory: Inventory, pools: tuple[Pool, ...]) -> tuple[Problem, ...]:
    """Return every problem that concerns the node, a selected device or a resource: sorted, each once.

    What is wrong with a device that no resource selects doesn't concern the operator of these resources (D1).
    """
    selected = {member.device for pool in pools for member in pool.members}
    found = set(inventory.problems) | set(together.overlaps(pools))
    found |= {problem for device in inventory.devices if device.name in selected for problem in device.problems}
    found |= {problem for pool in pools for problem in pool.problems}
    return tuple(sorted(found))


def _problems(problems: Iterable[Problem]) -> list[Json]:
    return [{"what": problem.what, "why": problem.why, "hint": problem.hint} for problem in problems]


def _device(device: RdmaDevice) -> dict[str, Json]:
    pci = device.pci
    return {
        "name": device.name,
        "pciAddress": pci.address if pci else None,
        "vendor": pci.vendor if pci else None,
        "device": pci.device if pci else None,
        "driver": device.driver,
        "softwareDriver": device.software,
        "guid": device.guid,
        "netdevs": None if device.netdevs is None else [net.name for net in device.netdevs],
        "linkTypes": list(device.link_types),
        "ports": [
            {"number": port.number, "state": port.state, "linkType": port.link_type, "rateGbps": port.rate_gbps}
            for port in device.ports
        ],
        "numaNode": device.numa_node,
        "nearestGpu": device.nearest_gpu,
        "pf": pci.pf if pci else None,
        "vfIndex": pci.vf_index if pci else None,
        "sfIndex": device.auxiliary.sfnum if device.auxiliary else None,
        "management": device.is_management,
        "charDevices": [node.path for node in device.char_nodes],
        "problems": _problems(device.problems),
    }
