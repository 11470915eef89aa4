# SPDX-License-Identifier: Apache-2.0
"""Suggested configurations: they load, and give each kind of fabric device its resource."""

import json
from dataclasses import replace
from typing import Any

import pytest

from rdma_plugin.core import config, pools
from rdma_plugin.core.errors import ConfigError
from rdma_plugin.core.model import CharKind, Inventory, LinkType, Port, PortState, RdmaDevice
from rdma_plugin.core.suggest import suggest
from tests.core.values import hca, node


def offered(inventory: Inventory) -> dict[str, list[str]]:
    """Return the HCAs of each resource of the suggestion, after it went through the parser."""
    parsed = config.parse(json.dumps(suggest(inventory)), "suggestion")
    return {pool.resource: [member.device for member in pool.members] for pool in pools.build(parsed, inventory, {})}


def like(base: RdmaDevice, /, **changes: Any) -> RdmaDevice:
    """Return the device with changes to its PCI function."""
    assert base.pci is not None
    return replace(base, pci=replace(base.pci, **changes))


def roce(index: int) -> RdmaDevice:
    """Return a RoCE device of the same driver."""
    return like(hca(index, link_type=LinkType.ETHER), device="a2dc")


def test_one_resource_for_each_link_layer() -> None:
    """A DGX-like node: InfiniBand with 200 slots, RoCE with 63, by selectors that hold on every such node."""
    inventory = node(hca(0), roce(1), hca(2))
    assert suggest(inventory) == {
        "configList": [
            {
                "resourceName": "hca_ib",
                "rdmaHcaMax": 200,
                "selectors": {"drivers": ["mlx5_core"], "linkTypes": ["infiniband"]},
            },
            {
                "resourceName": "hca_roce",
                "rdmaHcaMax": 63,
                "selectors": {"drivers": ["mlx5_core"], "linkTypes": ["ether"]},
            },
        ]
    }
    assert offered(inventory) == {"rdma/hca_roce": ["mlx5_1"], "rdma/hca_ib": ["mlx5_0", "mlx5_2"]}


def test_drivers_are_told_apart() -> None:
    """Two drivers of one link layer are two resources that carry the driver's name; EFA has no link type."""
    efa = like(hca(3, link_type=LinkType.UNKNOWN), driver="efa", vendor="1d0f")
    inventory = node(roce(0), like(roce(1), driver="bnxt_en"), efa)
    assert offered(inventory) == {
        "rdma/hca_roce_mlx5_core": ["mlx5_0"],
        "rdma/hca_roce_bnxt_en": ["mlx5_1"],
        "rdma/hca_efa": ["mlx5_3"],
    }


def test_management_functions_and_devices_without_uverbs_are_left_out() -> None:
    """Neither is suggested, and neither slips in."""
    inventory = node(like(hca(0), is_management=True), hca(1), hca(2, kinds=(CharKind.UMAD,)))
    assert offered(inventory) == {"rdma/hca_ib": ["mlx5_1"]}


def test_virtual_functions_are_left_to_others() -> None:
    """VFs beside their physical function are excluded by device id, which holds on other nodes too."""
    vf = like(hca(1), device="101e", pf="0000:10:00.0", vf_index=0)
    inventory = node(hca(0), vf)
    assert offered(inventory) == {"rdma/hca_ib": ["mlx5_0"]}
    assert '"exclude": {"deviceIDs": ["101e"]}' in json.dumps(suggest(inventory))


def test_virtual_functions_alone_are_what_there_is() -> None:
    """Inside a VM the VFs are the HCAs."""
    assert offered(node(like(hca(0), device="101e"))) == {"rdma/hca_ib": ["mlx5_0"]}
    assert offered(node(like(hca(0), device="101e", pf="0000:10:00.0"))) == {"rdma/hca_ib": ["mlx5_0"]}


def test_cards_with_both_link_layers() -> None:
    """A card with an InfiniBand and an Ethernet port goes to InfiniBand only; its twin by id is excluded by name."""
    both = replace(
        roce(1), ports=(*roce(1).ports, Port(number=2, state=PortState.ACTIVE, link_type=LinkType.INFINIBAND))
    )
    assert offered(node(roce(0), both)) == {"rdma/hca_roce": ["mlx5_0"], "rdma/hca_ib": ["mlx5_1"]}


def test_kinds_without_an_active_port() -> None:
    """A kind that is down everywhere isn't suggested, unless all are."""
    down = replace(roce(1), ports=(Port(number=1, state=PortState.DOWN, link_type=LinkType.ETHER),))
    assert offered(node(hca(0), down)) == {"rdma/hca_ib": ["mlx5_0"]}
    assert offered(node(down)) == {"rdma/hca_roce": ["mlx5_1"]}


def test_software_devices_only_without_hardware() -> None:
    """Rxe is what a test machine has; beside hardware it is left out."""
    rxe = replace(hca(5, link_type=LinkType.ETHER), name="rxe0", pci=None, software="rdma_rxe", is_virtual=True)
    assert offered(node(rxe)) == {"rdma/hca_roce": ["rxe0"]}
    assert offered(node(rxe, hca(0))) == {"rdma/hca_ib": ["mlx5_0"]}


def test_odd_names_still_give_a_valid_document() -> None:
    """A driver that can't be told or written is replaced by the device's name."""
    inventory = node(like(roce(0), driver=None), like(roce(1), driver="[odd name"), like(roce(2), driver="a.b-"))
    assert offered(inventory) == {"rdma/hca_roce_other": ["mlx5_0", "mlx5_1"], "rdma/hca_roce_a_b": ["mlx5_2"]}


@pytest.mark.parametrize("devices", [(), (replace(hca(0), char_nodes=()),)])
def test_nothing_to_suggest(devices: tuple[RdmaDevice, ...]) -> None:
    """Without a usable device the list is empty, which is no valid configuration and says so."""
    document = suggest(node(*devices))
    assert document == {"configList": []}
    with pytest.raises(ConfigError, match="no resources configuration found"):
        config.parse(json.dumps(document), "suggestion")
