# SPDX-License-Identifier: Apache-2.0
"""One kubelet and one plugin process for all cases: what happens to the node in one case must not spoil the next."""

import io
import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from rdma_plugin.__main__ import main
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.plugin import Line, PluginProcess
from tests.guest import node
from tests.rig.wait import wait_until

PERIOD_S = 300
"""`periodicUpdateInterval`: long enough that an event must be noticed by itself, once the plugin does that."""
DEADLINE_S = 10.0
"""For the effect of an event. Generous, since the guest is 15 times slower than its host and the host may be busy."""
START_S = 60.0
"""For a plugin process to start, with all that it imports the first time."""
ANY = "rdma/any_rxe"
"""Every soft-RoCE device, as `drivers` selects it."""
RAIL = "rdma/rail"
"""The one on node.NETDEV, selected by an alternative name that only netlink tells."""
SLOTS = 4
ALL = {str(number): True for number in range(SLOTS)}
NONE = dict.fromkeys(ALL, False)
DEVICE = "rxe0"
TIMES: dict[str, list[float]] = {}
"""Event -> seconds from the end of the command to the list at the kubelet, for the table at the end."""


@contextmanager
def timed(event: str) -> Iterator[None]:
    """Note in TIMES how long it took, if it came to a good end."""
    began = time.monotonic()
    yield
    TIMES.setdefault(event, []).append(time.monotonic() - began)


class Plugin(NamedTuple):
    """The plugin that runs, what it is configured with, and the kubelet that it serves."""

    process: PluginProcess
    config: Path
    kubelet: FakeKubelet

    def follow(
        self, event: str, command: str, slots: dict[str, bool], resource: str = ANY, deadline_s: float = DEADLINE_S
    ) -> None:
        """Run a command that changes the node, and wait until the kubelet has this list of a resource.

        The list is another one before, or nothing would be proved.
        """
        assert sum(self.kubelet.slots(resource).values()) != sum(slots.values())
        node.run(command)
        with timed(event):
            assert self.kubelet.wait_slots(resource, sum(slots.values()), deadline_s) == slots

    def wait_log(self, event: str, **fields: object) -> Line:
        """Wait for a log line with these fields."""
        return self.process.wait_line(
            lambda line: line["event"] == event and all(line.get(key) == value for key, value in fields.items()),
            DEADLINE_S,
        )

    def pod_sees(self, resource: str) -> dict[str, str]:
        """Run a pod that asks for one slot; map its nodes to `rw` and its variables to their values."""
        pod = self.kubelet.run_pod("looking", {resource: 1})
        self.kubelet.delete_pod("looking")
        assert pod.phase == "Running", pod
        seen: dict[str, str] = {}
        for line in pod.logs.splitlines():
            _, text = line.split(" ", 1)
            name, value = text.split("=", 1) if "=" in text else text.split(" ", 1)
            seen[name] = value
        return seen

    def explain(self, resource: str = ANY) -> dict[str, Any]:
        """What `rdma-plugin explain` says of a resource now; its verdicts and the problems beside it."""
        report = command("explain", "--config", str(self.config))
        (found,) = (entry for entry in report["resources"] if entry["name"] == resource)
        verdicts = {entry["device"]: entry for entry in report["verdicts"] if entry["resource"] == resource}
        return {**found, "verdicts": verdicts, "problems": report["problems"]}


def command(*arguments: str) -> dict[str, Any]:
    """Call a command of the product that prints JSON; in this process, since a start costs up to 10 s of emulation."""
    with io.StringIO() as out:
        with redirect_stdout(out), pytest.raises(SystemExit) as ended:
            main([*arguments, "--json"])
        assert ended.value.code == 0, out.getvalue()
        printed: dict[str, Any] = json.loads(out.getvalue())
    return printed


def resource(name: str, **selectors: list[str]) -> dict[str, Any]:
    """One resource of the configuration, by its full name."""
    prefix, _, short = name.partition("/")
    return {"resourcePrefix": prefix, "resourceName": short, "rdmaHcaMax": SLOTS, "selectors": selectors}


@pytest.fixture(scope="module")
def plugin() -> Iterator[Plugin]:
    """The plugin and its kubelet, started on a node without any RDMA module."""
    node.require_guest()
    folder = Path(tempfile.mkdtemp(prefix="rp-", dir="/tmp"))
    config = folder / "config.json"
    resources = [
        resource(ANY, drivers=["rdma_rxe"]),
        resource(RAIL, drivers=["rdma_rxe"], ifNames=[node.ALTNAME]),
    ]
    config.write_text(json.dumps({"periodicUpdateInterval": PERIOD_S, "configList": resources}))
    with FakeKubelet(folder / "kubelet") as kubelet:
        arguments = ["--config", str(config), "--device-plugin-dir", str(kubelet.device_plugin_dir)]
        arguments += ["--plugin-registry-dir", str(kubelet.plugin_registry_dir)]
        with PluginProcess(*arguments) as process:
            wait_until(lambda: len(kubelet.streams()), START_S, "two lists", done=lambda count: count == 2)
            yield Plugin(process, config, kubelet)
            assert process.stop() == 0
    shutil.rmtree(folder)


@pytest.fixture
def rxe(plugin: Plugin) -> Plugin:
    """The plugin, on a node whose one soft-RoCE device is up and listed."""
    node.reset(DEVICE)
    for name in (ANY, RAIL):
        assert plugin.kubelet.wait_slots(name, SLOTS, START_S) == ALL
    return plugin


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how long each kind of event took."""
    if not TIMES:
        return
    terminalreporter.section(f"seconds from an event to the kubelet's list (periodicUpdateInterval {PERIOD_S} s)")
    terminalreporter.write_line(f"{'event':<36} {'n':>3} {'p50':>7} {'p99':>7} {'max':>7}")
    for event, times in TIMES.items():
        p99 = statistics.quantiles(times, n=100, method="inclusive")[98] if len(times) > 1 else times[0]
        cells = f"{statistics.median(times):7.3f} {p99:7.3f} {max(times):7.3f}"
        terminalreporter.write_line(f"{event:<36} {len(times):>3} {cells}")
