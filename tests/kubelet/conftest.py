# SPDX-License-Identifier: Apache-2.0
"""What the kubelet side's tests share: no blocking call of ours on the loop, a short folder, a fake kubelet of each rule."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from pytest_asyncio import is_async_test

from tests.fakes.kubelet import FakeKubelet


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run all tests of this folder on one loop: grpc.aio's poller is shared by a process and made for one."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and isinstance(item, pytest.Function) and is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"))


@pytest.fixture(autouse=True)
def _no_blocking() -> Iterator[None]:
    """Fail the test if the product blocks the loop: open, read, stat, unlink, connect and the like."""
    with blockbuster_ctx("rdma_plugin"):
        yield


@pytest.fixture(params=["single", "list"])
def kubelet(request: pytest.FixtureRequest, short_dir: Path) -> Iterator[FakeKubelet]:
    """A running kubelet, with the registration rule up to 1.36 and with that of 1.37."""
    with FakeKubelet(short_dir, rule=request.param) as fake:
        yield fake


@pytest.fixture
def any_kubelet(short_dir: Path) -> Iterator[FakeKubelet]:
    """A running kubelet, where the rule doesn't matter."""
    with FakeKubelet(short_dir) as fake:
        yield fake
