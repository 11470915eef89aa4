# SPDX-License-Identifier: Apache-2.0
"""Measure the real process on a laid-out DGX against the fake kubelet, and print one table: `make bench`.

Times are taken from outside, by the fake kubelet in this process, so they include its own share. Nothing here is a
test; the figures and what they are worth are in docs/performance.md.
"""

import argparse
import json
import os
import re
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import grpc

from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from rdma_plugin.pb import deviceplugin_v1beta1_pb2_grpc as rpc
from tests.fakes import nodes, places
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.plugin import PluginProcess

HCAS = ("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_7", "mlx5_8", "mlx5_9", "mlx5_10")
DEADLINE_S = 60.0
SLOTS = 200


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    what: str
    figure: str
    how: str


def name(number: int = 0) -> str:
    """Return the full name of a resource of `write_config`."""
    return f"rdma/bench_{number}"


def write_config(path: Path, resources: int = 1, slots: int = SLOTS) -> None:
    """Write a configuration with resources of one HCA each."""
    listed = [
        {"resourceName": f"bench_{i}", "rdmaHcaMax": slots, "selectors": {"rdmaDevices": [HCAS[i % len(HCAS)]]}}
        for i in range(resources)
    ]
    path.write_text(json.dumps({"periodicUpdateInterval": 60, "configList": listed}))


class Bench:
    """A node, a kubelet, and a configuration in one folder."""

    def __init__(self, folder: Path, kubelet: FakeKubelet, config: Path) -> None:
        self.root = folder / "node"
        self.root.mkdir()
        nodes.lay_out(nodes.load(nodes.DGX), self.root)
        self.kubelet = kubelet
        self.config = config

    @contextmanager
    def plugin(self, resources: int = 1, slots: int = SLOTS) -> Iterator[PluginProcess]:
        """Run the plugin; all lists are there on entering."""
        write_config(self.config, resources, slots)
        with PluginProcess(
            *("--root", str(self.root), "--config", str(self.config), "--registration", "kubelet"),
            *("--device-plugin-dir", str(self.kubelet.device_plugin_dir)),
            *("--plugin-registry-dir", str(self.kubelet.plugin_registry_dir)),
        ) as process:
            for number in range(resources):
                self.kubelet.wait_slots(name(number), slots, DEADLINE_S)
            yield process
        for number in range(resources):
            self.kubelet.wait_slots(name(number), 0, DEADLINE_S)

    def start_s(self, resources: int = 1, slots: int = SLOTS) -> float:
        """Return the time from the making of the process until all lists are there, seconds."""
        began = time.perf_counter()
        with self.plugin(resources, slots):
            return time.perf_counter() - began

    def port(self, hca: str = HCAS[0]) -> Path:
        """Return the state file of an HCA's port."""
        return self.root / "sys/class/infiniband" / hca / "ports/1/state"


def status(pid: int, field: str) -> int:
    """Return a number of /proc/PID/status."""
    found = re.search(rf"^{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found
    return int(found[1])


def switches(pid: int) -> int:
    """Return the voluntary context switches of all threads so far: each is a wake-up."""
    tasks = Path(f"/proc/{pid}/task").glob("*/status")
    return sum(
        int(number)
        for task in tasks
        for number in re.findall(r"^voluntary\S+:\s+(\d+)", task.read_text(), re.MULTILINE)
    )


def cpu_ms(pid: int) -> float:
    """Return the CPU time of all threads so far, from the scheduler's own nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e6


def idle(bench: Bench, resources: int, seconds: float) -> Iterator[Row]:
    """Leave the process alone for a while."""
    with bench.plugin(resources) as process:
        pid = process.process.pid
        threading.Event().wait(3)  # what a start leaves behind
        cpu, wakes = cpu_ms(pid), switches(pid)
        threading.Event().wait(seconds)
        cpu, wakes = (cpu_ms(pid) - cpu) * 60 / seconds, round((switches(pid) - wakes) * 60 / seconds)
        of = f"{resources} resource{'s' * (resources > 1)}"
        yield Row(f"RSS, {of}", f"{status(pid, 'VmRSS') / 1024:.1f} MiB", "idle, after the start")
        yield Row(f"Idle CPU, {of}", f"{cpu:.0f} ms a minute", f"over {seconds:g} s")
        yield Row(f"Idle wake-ups, {of}", f"{wakes} a minute", "voluntary context switches of all threads")
        yield Row(f"Threads, {of}", str(status(pid, "Threads")), "")


def call(stub: rpc.DevicePluginStub, count: int, into: list[float]) -> None:
    """Call Allocate for one slot again and again."""
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=["7"])])
    for _ in range(count):
        began = time.perf_counter()
        stub.Allocate(request, timeout=10)
        into.append(time.perf_counter() - began)


def allocate(bench: Bench, callers: int, count: int) -> Iterator[Row]:
    """Call Allocate from several threads, each with a connection of its own."""
    seconds: list[float] = []
    with bench.plugin() as process:
        (path,) = bench.kubelet.streams()
        options: Any = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        channels = [grpc.insecure_channel(f"unix:{path}", options=options) for _ in range(callers)]
        stubs = [rpc.DevicePluginStub(channel) for channel in channels]
        for stub in stubs:
            call(stub, 20, [])
        threads = [threading.Thread(target=call, args=(stub, count // callers, seconds)) for stub in stubs]
        cpu, began = cpu_ms(process.process.pid), time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took_s, cpu = time.perf_counter() - began, cpu_ms(process.process.pid) - cpu
        for channel in channels:
            channel.close()
    what = "Allocate, one caller" if callers == 1 else f"Allocate, {callers} callers"
    how = f"{len(seconds)} calls, {len(seconds) / took_s:.0f} a second, {cpu * 1000 / len(seconds):.0f} µs CPU each"
    yield Row(what, f"p50 {at(seconds, 0.5):.2f} ms, p99 {at(seconds, 0.99):.2f} ms", how)


def changes(bench: Bench, rounds: int) -> Iterator[Row]:
    """Time from a change to the list that shows it."""
    with bench.plugin():
        restarts = []
        for _ in range(rounds):
            bench.kubelet.stop()
            began = time.perf_counter()
            bench.kubelet.start()
            bench.kubelet.wait_slots(name(), SLOTS, DEADLINE_S)
            restarts.append(time.perf_counter() - began)
        edits = [
            timed(bench, partial(write_config, bench.config, 1, 50 + number), 50 + number) for number in range(rounds)
        ]
        states = [("1: DOWN\n", 0), ("4: ACTIVE\n", 49 + rounds)] * ((rounds + 1) // 2)
        ports = [timed(bench, partial(bench.port().write_text, text), healthy) for text, healthy in states]
    yield Row("Kubelet start → list", spread(restarts), "kubelet.sock made anew; the fake kubelet's start included")
    yield Row("Config edit → list", spread(edits), "written in place")
    yield Row("Port change → list", spread(ports), "no event here: found by the glance every 2 s")


def timed(bench: Bench, change: Callable[[], object], healthy: int) -> float:
    """Return the seconds from a change until so many slots are healthy."""
    began = time.perf_counter()
    change()
    bench.kubelet.wait_slots(name(), healthy, DEADLINE_S)
    return time.perf_counter() - began


def at(seconds: Iterable[float], share: float) -> float:
    """Return a quantile in milliseconds."""
    in_order = sorted(seconds)
    return in_order[min(len(in_order) - 1, int(len(in_order) * share))] * 1000


def spread(seconds: list[float]) -> str:
    """Return least, median and most."""
    return " / ".join(f"{at(seconds, share):.0f}" for share in (0, 0.5, 1)) + " ms"


def measure(bench: Bench, rounds: int, seconds: float) -> Iterator[Row]:
    """Measure everything, one after the other."""
    bench.start_s()  # byte code and page cache
    yield Row(
        "Start → list", spread([bench.start_s() for _ in range(rounds)]), f"process made → 200 slots, n = {rounds}"
    )
    few = max(2, rounds // 4)
    yield Row("Start → 32 lists of 1 000", spread([bench.start_s(32, 1000) for _ in range(few)]), f"n = {few}")
    yield Row("Start → list of 100 000", spread([bench.start_s(1, 100_000) for _ in range(few)]), f"n = {few}")
    for resources in (1, 32):
        yield from idle(bench, resources, seconds)
    for callers in (1, 8):
        yield from allocate(bench, callers, 400 * rounds)
    yield from changes(bench, rounds)


def main() -> None:
    """Print the table as Markdown, each row as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=10, help="how often each thing is measured")
    parser.add_argument("--idle-s", type=float, default=60, help="how long to leave the process alone")
    options = parser.parse_args()
    write = partial(print, flush=True)
    write(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n\n| what | figure | how |\n| --- | --- | --- |")
    with (
        places.short_dir() as folder,
        tempfile.TemporaryDirectory() as etc,
        # the rule with the larger message limit, which a list of 100 000 slots may need
        FakeKubelet(folder / "kubelet", rule="list") as kubelet,
    ):
        kubelet.stop()
        kubelet.watches_plugins = False  # its watcher lists a directory ten times a second, which the plugin hears
        kubelet.start()
        for row in measure(Bench(folder, kubelet, Path(etc) / "config.json"), options.rounds, options.idle_s):
            write(f"| {row.what} | {row.figure} | {row.how} |")
    write(f"\nload {os.getloadavg()[0]:.1f} at the end")


if __name__ == "__main__":
    main()
