# SPDX-License-Identifier: Apache-2.0
"""Discovery on very many devices and on trees that chance has mutated."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rdma_plugin.core.model import CharKind
from rdma_plugin.host import scan
from tests.fakes import damage, nodes
from tests.fakes.nodes_format import FunctionSpec, Holder, Node, PortSpec, RdmaSpec

_MUTATIONS = ("remove", "forbid", "fill", "flood", "directory", "fifo", "loop", "up", "escape", "dangle", "rename")


def _mutate(path: Path, mutation: str, content: bytes) -> None:
    targets = {"loop": path.name, "up": "..", "escape": "/", "dangle": "../nowhere"}
    match mutation:
        case "remove":
            damage.remove(path)
        case "forbid":
            damage.forbid(path)
        case "fill":
            damage.fill(path, content)
        case "flood":
            damage.fill(path, (content or b"0") * 5000)
        case "directory":
            damage.make_directory(path)
        case "fifo":
            damage.make_fifo(path)
        case "rename":
            path.rename(path.with_name(f"{path.name}{content.hex()[:8]}"))
        case _:
            damage.bend(path, targets[mutation])


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_thousand_devices(root: Path) -> None:
    """A thousand devices are read in few seconds of CPU time, each with its uverbs node."""
    port = PortSpec(n=1, link="IB", state="active", rate="400 Gb/sec (4X NDR)", gid_table=0)
    functions = tuple(
        FunctionSpec(
            address=f"0000:{number >> 3:02x}:00.{number & 7}",
            parts=("pci0000:00", f"0000:{number >> 3:02x}:00.{number & 7}"),
            id="15b3:1021",
            class_code="020700",
            driver="mlx5_core",
            rdma=(RdmaSpec(name=f"mlx5_{number}", guid=f"58a2:e103:0000:{number:04x}", ports=(port,), uverbs=number),),
        )
        for number in range(1000)
    )
    node = Node(
        name="many",
        functions=functions,
        virtual=Holder(),
        modules=frozenset({"ib_uverbs", "rdma_ucm"}),
        rdma_cm=122,
        netns_mode="shared",
        numa={},
        bridges={},
        dev={"missing": [], "dirs": [], "files": []},
        expect={},
    )
    nodes.lay_out(node, root, "links")
    start = time.process_time()

    inventory = scan.scan(root)

    assert time.process_time() - start < 5
    assert [device.name for device in inventory.devices] == [f"mlx5_{number}" for number in range(1000)]
    assert all(device.char_nodes[0].kind is CharKind.UVERBS and not device.problems for device in inventory.devices)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from([nodes.BLUEFIELD, nodes.MLX4]),
    changes=st.lists(
        st.tuples(st.integers(0, 100_000), st.sampled_from(_MUTATIONS), st.binary(max_size=40)), min_size=1, max_size=25
    ),
)
def test_mutated_tree_never_raises(root: Path, path: Path, changes: list[tuple[int, str, bytes]]) -> None:
    """Whatever is removed, replaced, bent or renamed: a scan ends, in order, without a path of the root in it."""
    for part in ("sys", "dev"):
        damage.remove(root / part)
    nodes.lay_out(nodes.load(path), root, "links")
    places = sorted(place for place in root.rglob("*") if len(place.relative_to(root).parts) > 2)
    for index, mutation, content in changes:
        place = places[index % len(places)]
        if os.path.lexists(place) and os.access(place.parent, os.W_OK | os.X_OK):
            _mutate(place, mutation, content)

    inventory = scan.scan(root)

    damage.allow_all(root)
    assert list(inventory.problems) == sorted(inventory.problems)
    assert all(node.path.startswith("/dev/infiniband/") for device in inventory.devices for node in device.char_nodes)
    assert str(root) not in damage.said(inventory)
