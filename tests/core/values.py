# SPDX-License-Identifier: Apache-2.0
"""Builders of values for core tests: devices as a scan would return them, configurations as a user would write them."""

import json
from typing import Any

from rdma_plugin.core import config as config_module
from rdma_plugin.core.config import Config
from rdma_plugin.core.model import (
    CharKind,
    CharNode,
    Inventory,
    LinkType,
    NetDevice,
    NetnsMode,
    PciFunction,
    Port,
    PortState,
    Problem,
    RdmaDevice,
)

BROKEN = Problem(what="node", why="it is a plain file", hint="remove it")


def char(kind: CharKind, number: int, problem: Problem | None = None) -> CharNode:
    """A node such as uverbs3."""
    name = f"{kind}{number}"
    return CharNode(
        kind=kind, name=name, path=f"/dev/infiniband/{name}", major=231, minor=192 + number, problem=problem
    )


def rdma_cm(problem: Problem | None = None) -> CharNode:
    """The rdma_cm node."""
    return CharNode(
        kind=CharKind.RDMA_CM, name="rdma_cm", path="/dev/infiniband/rdma_cm", major=10, minor=122, problem=problem
    )


def hca(
    index: int,
    *,
    state: PortState | None = PortState.ACTIVE,
    numa_node: int | None = 0,
    kinds: tuple[CharKind, ...] = (CharKind.UVERBS, CharKind.UMAD, CharKind.ISSM),
    uverbs_problem: Problem | None = None,
    link_type: LinkType = LinkType.INFINIBAND,
) -> RdmaDevice:
    """A ConnectX-7 `mlx5_<index>` with interface `ib<index>`."""
    return RdmaDevice(
        name=f"mlx5_{index}",
        pci=PciFunction(
            address=f"0000:{index + 16:02x}:00.0",
            sys_path=f"devices/pci0000:00/0000:{index + 16:02x}:00.0",
            vendor="15b3",
            device="1021",
            driver="mlx5_core",
            numa_node=numa_node,
        ),
        ports=(Port(number=1, state=state, link_type=link_type, rate_gbps=400.0),),
        netdevs=(NetDevice(name=f"ib{index}"),),
        pf_netdevs=(f"ib{index}",),
        char_nodes=tuple(char(kind, index, uverbs_problem if kind is CharKind.UVERBS else None) for kind in kinds),
    )


RDMA_CM = rdma_cm()


def node(
    *devices: RdmaDevice, rdma_cm: CharNode | None = RDMA_CM, netns_mode: NetnsMode | None = NetnsMode.SHARED
) -> Inventory:
    """An inventory of these devices, with rdma_cm unless told otherwise."""
    return Inventory(devices=devices, rdma_cm=rdma_cm, netns_mode=netns_mode)


def config(*resources: dict[str, Any]) -> Config:
    """Parse a configuration; each resource starts as `a` with 3 slots over vendor 15b3."""
    base = {"resourceName": "a", "rdmaHcaMax": 3, "selectors": {"vendors": ["15b3"]}}
    text = json.dumps({"configList": [base | resource for resource in resources or ({},)]})
    return config_module.parse(text, "test")
