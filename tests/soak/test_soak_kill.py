# SPDX-License-Identifier: Apache-2.0
"""SIGKILL at random moments: the next process registers, removes what the dead one left, and touches nothing else."""

import os
import random
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from rdma_plugin.kubelet.paths import PRIVATE_AGE_S
from tests.e2e.conftest import plugin
from tests.fakes.kubelet import FakeKubelet
from tests.rig.wait import wait_until
from tests.soak.long import times

RESOURCE = "rdma/hca_shared_devices_a"
ALL = {str(number): True for number in range(200)}
KILLS = times(short=2, share=0.05)
"""In each of two cases."""
LATEST_S = 1.6
"""A start takes about half of that on a quiet machine, so half of the kills hit one."""
KUBELETS_OWN = {"kubelet.sock", "kubelet_internal_checkpoint"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 6 * KILLS)]


@contextmanager
def foreign(directory: Path) -> Iterator[dict[Path, int]]:
    """Put things of others into a directory; yields each with its inode number."""
    with ExitStack() as stack:
        (directory / "note.txt").write_text("somebody's")
        (directory / "rdma-plugin_rdma_x_01234567.sock").write_text("a file under a name like ours")
        (directory / "rdma-plugin_rdma_y_01234567.sock").mkdir()
        (directory / "rdma-plugin_rdma_z_01234567.sock").symlink_to("note.txt")
        for name, is_live in {"other.sock": True, "dead.sock": False, "rdma-plugin_live_0.sock": True}.items():
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(str(directory / name))
            if is_live:
                listener.listen(1024)  # nobody accepts: each look at it takes a place in the queue
                stack.callback(listener.close)
            else:
                listener.close()
        yield {path: path.lstat().st_ino for path in directory.iterdir() if path.name not in KUBELETS_OWN}


def there(directory: Path) -> dict[Path, int]:
    """Return what lies in a directory now, the kubelet's own things left out."""
    return {path: path.lstat().st_ino for path in directory.iterdir() if path.name not in KUBELETS_OWN}


def age(directory: Path) -> None:
    """Make sockets that were killed before they got their name so old that nobody can be about to name them."""
    past = time.time() - 2 * PRIVATE_AGE_S
    for path in directory.glob(".rdma-plugin_*"):
        os.utime(path, (past, past))


@pytest.mark.parametrize("registration", ["kubelet", "watcher"])
def test_killed_at_random_moments(any_kubelet: FakeKubelet, dgx: Path, config: Path, registration: str) -> None:
    """After every kill the next start has all slots; in the end nothing is left but what others put there."""
    kubelet, chance = any_kubelet, random.Random(20261201)  # noqa: S311 - moments, not secrets
    folders = (kubelet.device_plugin_dir, kubelet.plugin_registry_dir)
    with foreign(folders[0]) as first, foreign(folders[1]) as second:
        for _ in range(KILLS):
            with plugin(kubelet, dgx, config, registration) as process:
                with suppress(subprocess.TimeoutExpired):
                    process.process.wait(chance.uniform(0, LATEST_S))
                assert process.process.poll() is None, process.text
                process.kill()
            with plugin(kubelet, dgx, config, registration) as process:
                process.wait_line(lambda line: line["event"] == "registered", 15)
                assert kubelet.wait_slots(RESOURCE, 200, 15) == ALL
                process.kill()
        for folder in folders:
            age(folder)
        with plugin(kubelet, dgx, config, registration) as process:
            process.wait_line(lambda line: line["event"] == "registered", 15)
            assert kubelet.wait_slots(RESOURCE, 200, 15) == ALL
            wait_until(lambda: len(there(folders[0]) | there(folders[1])) == 1 + len(first | second), 5, "one socket")
            assert process.stop() == 0
        assert there(folders[0]) == first
        assert there(folders[1]) == second
