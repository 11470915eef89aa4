# SPDX-License-Identifier: Apache-2.0
"""The described servers of tests/nodes: read one, change it, lay it out as real files below a directory.

    node = nodes.load(nodes.DGX, changes={"net ibp24s0": {"name": "ibs108"}})
    nodes.lay_out(node, tmp_path)        # tmp_path/sys and tmp_path/dev

Nothing here knows the product; `Node.expect` is what its discovery must find.
"""

from pathlib import Path

from tests.fakes.nodes_format import Node
from tests.fakes.nodes_layout import lay_out
from tests.fakes.nodes_load import load, variants
from tests.fakes.nodes_tree import Chars, usable_chars

__all__ = [
    "ALL",
    "BLUEFIELD",
    "DGX",
    "LAG",
    "MLX4",
    "ODDITIES",
    "OTHERS",
    "SRIOV",
    "Chars",
    "Node",
    "lay_out",
    "load",
    "usable_chars",
    "variants",
]

_DIRECTORY = Path(__file__).parent.parent / "nodes"

ALL = tuple(sorted(_DIRECTORY.glob("*.yaml")))
"""The node files."""

DGX = _DIRECTORY / "a-dgx-h100.yaml"
"""Eight InfiniBand HCAs and three Ethernet ones."""

LAG = _DIRECTORY / "b-roce-lag.yaml"
"""Eight RoCE rails and a bond."""

SRIOV = _DIRECTORY / "c-sriov.yaml"
"""VFs on the host, in pods, for VMs and without driver."""

BLUEFIELD = _DIRECTORY / "d-bluefield-dpu.yaml"
"""Switchdev: representors and sub-functions."""

MLX4 = _DIRECTORY / "e-mlx4-cx4-cx5.yaml"
"""Two ports on one device, of the same or of different link types."""

OTHERS = _DIRECTORY / "f-non-mellanox.yaml"
"""bnxt_re, irdma, EFA, rxe, siw."""

ODDITIES = _DIRECTORY / "g-oddities.yaml"
"""Odd PCI domains, renames, NVSwitch management, two ibdevs on one function."""
