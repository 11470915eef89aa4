# SPDX-License-Identifier: Apache-2.0
"""A kubelet that vanishes without closing its connections (K4); in the long form only, because it takes 40 s."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.e2e.conftest import plugin
from tests.fakes.device_manager import Rule
from tests.fakes.kubelet import FakeKubelet
from tests.soak.test_soak_kubelet import ALL, RESOURCE, is_registered

FOUND_S = 42.0
"""30 s until gRPC asks, 10 s until it gives up, and some for this machine."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@contextmanager
def kubelet_process(root: Path, rule: Rule) -> Iterator["subprocess.Popen[str]"]:
    """Run a kubelet that can be stopped; killed at the end."""
    command = [sys.executable, "-m", "tests.soak.kubelet_process", str(root), rule]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("registration", ["kubelet", "watcher"])
@pytest.mark.parametrize("rule", ["single", "list"])
def test_kubelet_that_vanishes_without_a_word(
    short_dir: Path, dgx: Path, config: Path, rule: Rule, registration: str
) -> None:
    """The keepalive finds the dead stream; a kubelet that comes then has all slots at once."""
    root = short_dir / "kubelet"
    with kubelet_process(root, rule) as frozen:
        successor = FakeKubelet(root, rule=rule)
        with plugin(successor, dgx, config, registration) as process:
            process.wait_line(is_registered)
            frozen.send_signal(signal.SIGSTOP)
            line = process.wait_line(lambda line: "registration ended" in line["event"], FOUND_S)
            assert line["why"] == "the kubelet's stream ended"
            frozen.kill()
            with successor:
                assert successor.wait_slots(RESOURCE, 200, 20) == ALL
            assert process.stop() == 0
