# SPDX-License-Identifier: Apache-2.0
"""Storms of events: no final state is lost, the kubelet is answered meanwhile, and memory stays bounded."""

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from rdma_plugin.host import watch
from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from rdma_plugin.pb import deviceplugin_v1beta1_pb2_grpc as rpc
from rdma_plugin.wake import LATEST_S, QUIET_S, Wake
from tests.e2e.conftest import plugin_arguments
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.plugin import PluginProcess
from tests.soak import footprint
from tests.soak.long import times

BURST = 1000
BURSTS = times(short=3, share=0.1)
RESOURCES = 32
SLOTS = 50
UEVENT = Path("/sys/class/net/lo/uevent")
"""Written to, it makes the kernel send an event of subsystem net; nothing else happens."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + 3 * BURSTS)]


def name(number: int) -> str:
    """The full name of a resource of `write_config`."""
    return f"rdma/storm_{number}"


def write_config(path: Path) -> Path:
    """Write a configuration of many resources, each of one of the DGX's eight InfiniBand HCAs."""
    hcas = [f"mlx5_{number}" for number in (0, 3, 4, 5, 7, 8, 9, 10)]
    listed = [
        {
            "resourceName": f"storm_{number}",
            "rdmaHcaMax": SLOTS,
            "selectors": {"rdmaDevices": [hcas[number % len(hcas)]]},
        }
        for number in range(RESOURCES)
    ]
    path.write_text(json.dumps({"periodicUpdateInterval": 0, "configList": listed}))
    return path


@contextmanager
def allocating(paths: list[str], seconds: list[float], failures: list[str]) -> Iterator[None]:
    """Call Allocate on one socket after the other, in a thread, until the end of the block."""
    over = threading.Event()

    def run() -> None:
        options = [("grpc.default_authority", "localhost")]
        channels = [grpc.insecure_channel(f"unix:{path}", options=options) for path in paths]
        stubs = [rpc.DevicePluginStub(channel) for channel in channels]
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["7"])])
        while not over.is_set():
            for stub in stubs:
                began = time.perf_counter()
                try:
                    stub.Allocate(request, timeout=10)
                except grpc.RpcError as err:
                    call: Any = err  # one object that is both error and call
                    failures.append(call.details())
                seconds.append(time.perf_counter() - began)
        for channel in channels:
            channel.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield
    over.set()
    thread.join()


def test_storm_while_lists_stream_and_pods_come(any_kubelet: FakeKubelet, dgx: Path, tmp_path: Path) -> None:
    """Signals, files that come and go, ports that flap: the last state of each burst arrives, and Allocate is quick."""
    config = write_config(tmp_path / "config.json")
    port = dgx / "sys/class/infiniband/mlx5_0/ports/1/state"
    command = [sys.executable, "-m", "tests.soak.burst"]
    seconds: list[float] = []
    failures: list[str] = []
    with PluginProcess(*plugin_arguments(any_kubelet, dgx, config)) as process:
        for number in range(RESOURCES):
            any_kubelet.wait_slots(name(number), SLOTS)
        start = None
        with allocating(any_kubelet.streams(), seconds, failures):
            for burst in range(BURSTS):
                state, healthy = [("1: DOWN", 0), ("4: ACTIVE", SLOTS)][burst % 2]
                subprocess.run([*command, str(process.process.pid), str(tmp_path), str(port), str(BURST)], check=True)
                port.write_text(f"{state}\n")
                any_kubelet.wait_slots(name(0), healthy)
                assert sum(any_kubelet.slots(name(1)).values()) == SLOTS
                if burst == BURSTS // 10:  # by then the process has allocated all that it ever will
                    start = footprint.of(process.process.pid)
            assert start
            end = footprint.wait_fits(process.process.pid, start)
        assert process.stop() == 0
    assert failures == []
    in_order = sorted(seconds)
    p99 = in_order[len(in_order) * 99 // 100]
    assert p99 < 1
    print(  # noqa: T201 - figures for -s
        f"{BURST * BURSTS} events of each kind: {len(seconds)} Allocate, p50 {in_order[len(in_order) // 2] * 1000:.1f} ms, "
        f"p99 {p99 * 1000:.1f} ms; {start} -> {end}"
    )


def write(directory: Path) -> None:
    """Make an event of the file system."""
    (directory / "note").write_text("")


def change_lo(directory: Path) -> None:
    """Make a kernel event of a network interface."""
    del directory
    UEVENT.write_text("change")


Source = tuple[Callable[[Path, Callable[[], None]], AbstractContextManager[None]], Callable[[Path], None]]
SOURCES: dict[str, Source] = {"directories": (lambda directory, wake: watch.directories([directory], wake), write)}
if os.access(UEVENT, os.W_OK):  # root; anybody else has the other source only
    SOURCES["uevents"] = (lambda _, wake: watch.uevents(wake), change_lo)


@pytest.mark.parametrize("source", SOURCES)
async def test_storm_of_events_makes_few_wake_ups(tmp_path: Path, source: str) -> None:
    """However many events: about one wake-up a second, and one after the last event of each burst."""
    listen, make_event = SOURCES[source]
    loop, wake = asyncio.get_running_loop(), Wake()
    woken: list[float] = []
    heard = asyncio.Event()

    async def count() -> None:
        while True:
            await wake.wait(None)
            woken.append(loop.time())
            heard.set()

    def storm() -> None:
        for _ in range(BURST):
            make_event(tmp_path)

    began = loop.time()
    with listen(tmp_path, wake.set):
        counting = asyncio.ensure_future(count())
        for _ in range(BURSTS):
            await loop.run_in_executor(None, storm)
            ended = loop.time()
            async with asyncio.timeout(LATEST_S + 5):
                while not woken or woken[-1] < ended:
                    heard.clear()
                    await heard.wait()
        counting.cancel()
    took_s = loop.time() - began
    assert len(woken) <= took_s / LATEST_S + 2 * BURSTS + 1
    print(f"{BURST * BURSTS} {source}: {len(woken)} wake-ups in {took_s:.1f} s, quiet {QUIET_S:g} s")  # noqa: T201 - figures for -s
