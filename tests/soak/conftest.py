# SPDX-License-Identifier: Apache-2.0
"""What the heavy tests share: the node and the configuration of the e2e tests, a kubelet of each rule."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import config, dgx
from tests.fakes.kubelet import FakeKubelet
from tests.soak.long import IS_LONG

__all__ = ["config", "dgx"]

collect_ignore = [] if IS_LONG else ["test_soak_half_open.py"]
"""The keepalive takes 40 s, which no short form can change."""


@pytest.fixture(params=["single", "list"])
def kubelet(request: pytest.FixtureRequest, short_dir: Path) -> Iterator[FakeKubelet]:
    """A running kubelet, with the registration rule up to 1.36 and with that of 1.37."""
    with FakeKubelet(short_dir / "kubelet", rule=request.param) as fake:
        yield fake


@pytest.fixture
def any_kubelet(short_dir: Path) -> Iterator[FakeKubelet]:
    """A running kubelet, where the rule doesn't matter."""
    with FakeKubelet(short_dir / "kubelet") as fake:
        yield fake
