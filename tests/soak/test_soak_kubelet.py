# SPDX-License-Identifier: Apache-2.0
"""One plugin process lives through one kubelet trouble after another: capacity comes back each time, with the same slots.

At the end the process holds what it held at the start: no file, no thread, no memory is lost with a registration.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.conftest import plugin
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.plugin import Line, PluginProcess
from tests.soak import footprint
from tests.soak.long import times

RESOURCE = "rdma/hca_shared_devices_a"
ALL = {str(number): True for number in range(200)}
RESTARTS = times(short=3, share=0.25)
"""Of one case; there are four cases, and each round of the others has a restart too."""
ROUNDS = times(short=1, share=0.05)
WARM_UP = 2
"""Rounds after which the process has loaded and allocated all that it ever will."""
DEADLINE_S = 20.0

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120 + 2 * RESTARTS + 20 * ROUNDS)]
Trouble = Callable[[FakeKubelet, Path], None]


def restart(kubelet: FakeKubelet, ours: Path) -> None:
    """Delete every socket in device-plugins and start again."""
    del ours
    kubelet.restart()


def refuse(kubelet: FakeKubelet, ours: Path) -> None:
    """Start again and refuse three times: Register fails, or NotifyRegistrationStatus says no."""
    del ours
    kubelet.stop()
    kubelet.refuse(3)
    kubelet.start()


def drop_stream(kubelet: FakeKubelet, ours: Path) -> None:
    """End the stream alone: kubelet.sock stays as it is."""
    del ours
    kubelet.drop_stream(RESOURCE)


def remove_socket(kubelet: FakeKubelet, ours: Path) -> None:
    """Take away our socket."""
    del kubelet
    ours.unlink()


def replace_socket(kubelet: FakeKubelet, ours: Path) -> None:
    """Put another file in the place of our socket."""
    del kubelet
    draft = ours.with_name(f"{ours.name}.draft")
    draft.write_text("not ours")
    draft.replace(ours)


TROUBLES = (restart, refuse, drop_stream, remove_socket, replace_socket)


def is_registered(line: Line) -> bool:
    """The plugin says that the kubelet reads its list."""
    return str(line["event"]) == "registered"


class Patient:
    """A plugin process that one trouble after another is done to."""

    def __init__(self, kubelet: FakeKubelet, process: PluginProcess) -> None:
        self._kubelet = kubelet
        self._process = process
        self.path = Path(process.wait_line(is_registered, DEADLINE_S)["path"])
        self._check()

    def suffer(self, trouble: Trouble) -> None:
        """Do it; return when the capacity is back on a socket that had never been there before."""
        seen, before = len(self._process.lines), self.path
        trouble(self._kubelet, before)
        self.path = Path(self._process.wait_line(is_registered, DEADLINE_S, after=seen)["path"])
        assert self.path != before
        self._check()
        if trouble is replace_socket:
            assert before.read_text() == "not ours"
            assert any(line.get("why") == "our socket was removed or replaced" for line in self._process.lines[seen:])

    def _check(self) -> None:
        assert self._kubelet.wait_slots(RESOURCE, 200, DEADLINE_S) == ALL


@pytest.mark.parametrize("registration", ["kubelet", "watcher"])
def test_kubelet_restarts_again_and_again(kubelet: FakeKubelet, dgx: Path, config: Path, registration: str) -> None:
    """After each restart all slots are there by themselves; after the last one nothing has been lost."""
    with plugin(kubelet, dgx, config, registration) as process:
        patient = Patient(kubelet, process)
        for _ in range(WARM_UP):
            patient.suffer(restart)
        start = footprint.of(process.process.pid)
        for _ in range(RESTARTS):
            patient.suffer(restart)
        end = footprint.wait_fits(process.process.pid, start)
        print(f"{RESTARTS} restarts, {kubelet.rule}, {registration}: {start} -> {end}")  # noqa: T201 - figures for -s
        assert process.stop() == 0


@pytest.mark.parametrize("registration", ["kubelet", "watcher"])
def test_every_trouble_in_turn(kubelet: FakeKubelet, dgx: Path, config: Path, registration: str) -> None:
    """Refusals, lost streams, sockets that are removed or replaced: healed each time, and another's file stays."""
    with plugin(kubelet, dgx, config, registration) as process:
        patient = Patient(kubelet, process)
        for _ in range(WARM_UP):
            patient.suffer(restart)
        start = footprint.of(process.process.pid)
        for _ in range(ROUNDS):
            for trouble in TROUBLES:
                patient.suffer(trouble)
        end = footprint.wait_fits(process.process.pid, start)
        print(f"{ROUNDS} rounds, {kubelet.rule}, {registration}: {start} -> {end}")  # noqa: T201 - figures for -s
        assert process.stop() == 0
    files = [path for path in patient.path.parent.iterdir() if path.name.startswith("rdma-plugin_")]
    assert [path.read_text() for path in files] == ["not ours"] * ROUNDS
