# SPDX-License-Identifier: Apache-2.0
"""Slot ids into an answer for one container."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdma_plugin.core import pools
from rdma_plugin.core.allocation import allocate
from rdma_plugin.core.errors import AllocationError, AllocationKind
from rdma_plugin.core.pool import Pool
from tests.core.values import BROKEN, config, hca, node


def make_pool(count: int = 2, **resource: Any) -> Pool:
    """A pool over `count` HCAs with three slots."""
    (pool,) = pools.build(config(resource), node(*(hca(index) for index in range(count))), {})
    return pool


def test_answer_has_all_nodes_and_the_names() -> None:
    """Any slot gives every node of the pool once, sorted, and a variable that names the HCAs."""
    answer = allocate(make_pool(), ["1"], {})
    assert [node.path for node in answer.nodes] == [
        "/dev/infiniband/rdma_cm",
        "/dev/infiniband/uverbs0",
        "/dev/infiniband/uverbs1",
    ]
    assert answer.env == (("RDMA_A", "mlx5_0,mlx5_1"),)
    assert allocate(make_pool(), ["0", "2"], {}) == answer


def test_environment_can_be_changed() -> None:
    """`env: false` sets nothing; `ncclEnv` adds exact names for NCCL."""
    assert allocate(make_pool(env=False), ["0"], {}).env == ()
    nccl = allocate(make_pool(ncclEnv=True), ["0"], {}).env
    assert nccl == (("NCCL_IB_HCA", "=mlx5_0,mlx5_1"), ("RDMA_A", "mlx5_0,mlx5_1"))


def test_empty_request_gets_an_empty_answer() -> None:
    """A container that asks for no slot gets nothing."""
    answer = allocate(make_pool(), [], {})
    assert (answer.nodes, answer.env) == ((), ())


@pytest.mark.parametrize("slot", ["3", "-1", "", "00", "x", "\u0661"])
def test_unknown_slot_is_refused_by_name(slot: str) -> None:
    """An id that the pool doesn't have is an error that says what it has."""
    with pytest.raises(AllocationError, match="3 slots, 0 to 2") as caught:
        allocate(make_pool(), ["0", slot], {})
    assert caught.value.kind is AllocationKind.UNKNOWN_SLOT


def test_hca_whose_uverbs_is_gone_gives_nothing() -> None:
    """The others are still given, and the variable names only them."""
    answer = allocate(make_pool(), ["0"], {"/dev/infiniband/uverbs0": BROKEN})
    assert [node.name for node in answer.nodes] == ["rdma_cm", "uverbs1"]
    assert answer.env == (("RDMA_A", "mlx5_1"),)


def test_optional_node_that_is_gone_is_left_out() -> None:
    """Without rdma_cm a pod still gets its HCA."""
    answer = allocate(make_pool(1), ["0"], {"/dev/infiniband/rdma_cm": BROKEN})
    assert [node.name for node in answer.nodes] == ["uverbs0"]


def test_no_usable_hca_is_refused_with_the_reason() -> None:
    """When every uverbs node is gone there is no answer: the error says what is wrong with each."""
    unusable = {f"/dev/infiniband/uverbs{index}": BROKEN for index in range(2)}
    with pytest.raises(AllocationError, match="no usable HCA now: node: it is a plain file") as caught:
        allocate(make_pool(), ["0"], unusable)
    assert caught.value.kind is AllocationKind.NOTHING_USABLE


@given(st.sets(st.sampled_from(["uverbs0", "uverbs1", "rdma_cm", "umad0"])))
def test_answer_is_within_the_pool_and_usable(gone: set[str]) -> None:
    """Whatever is gone: the answer is a subset of the pool's nodes without the unusable ones, or a clear error."""
    pool = make_pool(charDevices=["uverbs", "rdma_cm", "umad"])
    unusable = {f"/dev/infiniband/{name}": BROKEN for name in gone}
    try:
        answer = allocate(pool, ["0"], unusable)
    except AllocationError:
        assert {"uverbs0", "uverbs1"} <= gone
        return
    assert set(answer.nodes) <= set(pool.nodes)
    assert not {node.path for node in answer.nodes} & set(unusable)
