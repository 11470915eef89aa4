# SPDX-License-Identifier: Apache-2.0
"""A driver reload during Allocate: every answer is true for some moment of its call, or a refusal that says why.

One thread changes the node without pause; another calls Allocate on the plugin's own socket and compares each answer
with what the tree held between the call's begin and its end.
"""

import bisect
import os
import signal
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import grpc
import pytest

from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from rdma_plugin.pb import deviceplugin_v1beta1_pb2_grpc as rpc
from tests.e2e.conftest import plugin, write_config
from tests.fakes import damage
from tests.fakes.kubelet import FakeKubelet
from tests.soak.long import times

RESOURCE = "rdma/hca_shared_devices_a"
HCA = "mlx5_0"
OTHER = "uverbs3"
"""The node of an HCA that isn't selected."""
RELOADS = times(short=4, share=0.5)
CALLS = 12
"""Between two changes."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 3 * RELOADS)]


class Truth:
    """The paths that may be in an answer, over time; during a change it may be those before it and those after it."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._times = [time.monotonic()]
        self._states = [self._now()]

    @contextmanager
    def change(self) -> Iterator[None]:
        """Change the tree inside."""
        begin = time.monotonic()
        yield
        after = self._now()
        self._states += [self._states[-1] | after, after]
        self._times += [begin, time.monotonic()]

    def between(self, begin: float, end: float) -> frozenset[str]:
        """Return what was true at some moment from `begin` to `end`; no change may be under way."""
        first = max(0, bisect.bisect_right(self._times, begin) - 1)
        last = bisect.bisect_right(self._times, end)
        return frozenset().union(*self._states[first:last])

    def _now(self) -> frozenset[str]:
        sys, dev = self._root / "sys/class", self._root / "dev/infiniband"
        promised = {
            entry.name: (entry / "dev").read_text().strip()
            for kind in ("infiniband_verbs", "infiniband_mad")
            for entry in (sys / kind).iterdir()
            if (entry / "ibdev").exists()
            and (entry / "ibdev").read_text().strip() == HCA
            and (sys / "infiniband" / HCA).exists()
        }
        promised["rdma_cm"] = (sys / "misc/rdma_cm/dev").read_text().strip()
        return frozenset(
            f"/dev/infiniband/{name}" for name, number in promised.items() if _number(dev / name) == number
        )


def _number(path: Path) -> str | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return f"{os.major(found.st_rdev)}:{os.minor(found.st_rdev)}" if stat.S_ISCHR(found.st_mode) else None


@dataclass(frozen=True, slots=True)
class Answer:
    """What one call got, and when."""

    begin: float
    end: float
    paths: frozenset[str]


class Caller:
    """A thread that calls Allocate until the end of the block."""

    def __init__(self, socket: str) -> None:
        self.answers: list[Answer] = []
        self.refusals: list[tuple[grpc.StatusCode, str]] = []
        self._calls = 0
        self._called = threading.Condition()
        self._over = threading.Event()
        self._channel = grpc.insecure_channel(f"unix:{socket}", options=[("grpc.default_authority", "localhost")])
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._channel.close()

    def wait_calls(self, count: int) -> None:
        """Wait until `count` more calls are over."""
        with self._called:
            wanted = self._calls + count
            assert self._called.wait_for(lambda: self._calls >= wanted, 20), "Allocate hangs"

    def _run(self) -> None:
        stub = rpc.DevicePluginStub(self._channel)
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["7"])])
        while not self._over.is_set():
            begin = time.monotonic()
            try:
                answer = stub.Allocate(request, timeout=10)
            except grpc.RpcError as err:
                call: Any = err  # one object that is both error and call, which types-grpcio can't express
                self.refusals.append((call.code(), call.details()))
            else:
                (container,) = answer.container_responses
                paths = frozenset(device.host_path for device in container.devices)
                self.answers.append(Answer(begin, time.monotonic(), paths))
            with self._called:
                self._calls += 1
                self._called.notify_all()


class Driver:
    """Takes the HCA's nodes away and brings them back, as drivers and people do."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._verbs = root / "sys/class/infiniband_verbs"
        self._dev = root / "dev/infiniband"
        self._link = root / "sys/class/infiniband" / HCA
        self._target = self._link.readlink()
        self.name = "uverbs0"

    @property
    def node(self) -> Path:
        """The uverbs node."""
        return self._dev / self.name

    def remove(self) -> None:
        """Unload: device, verbs and node go."""
        self.node.rename(self._dev / "hidden")
        (self._verbs / self.name).rename(self._verbs / "hidden")
        self._link.unlink()

    def bring_back(self, number: int) -> None:
        """Load: the HCA comes back under another number."""
        self.name = f"uverbs{number}"
        self._link.symlink_to(self._target)
        (self._verbs / "hidden").rename(self._verbs / self.name)
        (self._dev / "hidden").rename(self.node)

    def swap(self) -> None:
        """Load two HCAs in another order: each has the other one's number now, and every node is a character device."""
        mine, other = (self._verbs / name / "ibdev" for name in (self.name, OTHER))
        text, other_text = mine.read_text(), other.read_text()
        mine.write_text(other_text)
        other.write_text(text)

    @contextmanager
    def replaced(self, kind: str) -> Iterator[None]:
        """Put something else in the place of the node, then the node again."""
        kept = self._dev / "kept"
        self.node.rename(kept)
        match kind:
            case "file":
                self.node.touch()
            case "directory":
                self.node.mkdir()
            case "other device":
                self.node.symlink_to("/dev/zero")
        yield
        damage.remove(self.node)
        kept.rename(self.node)


@pytest.mark.parametrize("looks_again", [True, False])
def test_reload_during_allocate(any_kubelet: FakeKubelet, dgx: Path, tmp_path: Path, *, looks_again: bool) -> None:
    """No answer ever has a node that isn't the selected HCA's, whether the plugin has looked again since or not."""
    kinds = [str(kind) for kind in ("uverbs", "umad", "issm", "rdma_cm")]
    config = write_config(tmp_path / "config.json", selectors={"rdmaDevices": [HCA]}, charDevices=kinds)
    truth, driver = Truth(dgx), Driver(dgx)
    with plugin(any_kubelet, dgx, config) as process:
        any_kubelet.wait_slots(RESOURCE, 200)
        (path,) = any_kubelet.streams()
        with Caller(path) as caller:
            for reload in range(RELOADS):
                for kind in ("file", "directory", "other device", "nothing"):
                    with truth.change():
                        replaced = driver.replaced(kind)
                        replaced.__enter__()
                    caller.wait_calls(CALLS)
                    with truth.change():
                        replaced.__exit__(None, None, None)
                    caller.wait_calls(CALLS)
                for _ in range(2):
                    with truth.change():
                        driver.swap()
                    caller.wait_calls(CALLS)
                with truth.change():
                    driver.remove()
                caller.wait_calls(CALLS)
                with truth.change():
                    driver.bring_back(40 + reload % 20)
                if looks_again:
                    process.process.send_signal(signal.SIGHUP)
                caller.wait_calls(CALLS)
            process.process.send_signal(signal.SIGHUP)
            any_kubelet.wait_slots(RESOURCE, 200)
        false = {answer.paths - truth.between(answer.begin, answer.end) for answer in caller.answers}
        assert false == {frozenset()}
        assert max(len(answer.paths) for answer in caller.answers) == len(kinds)
        assert len(caller.refusals) > RELOADS
        assert {code for code, _ in caller.refusals} == {grpc.StatusCode.FAILED_PRECONDITION}
        assert all(text.startswith(f"{RESOURCE} has no usable HCA now: ") for _, text in caller.refusals)
        assert process.stop() == 0
    print(f"{RELOADS} reloads: {len(caller.answers)} answers, {len(caller.refusals)} refusals")  # noqa: T201 - figures for -s
