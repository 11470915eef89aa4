# SPDX-License-Identifier: Apache-2.0
"""What is logged: a line for each change of state, nothing for a steady node."""

from rdma_plugin.core import pools
from rdma_plugin.core.changes import Severity, View, changes
from rdma_plugin.core.config import Config
from rdma_plugin.core.model import Inventory, PortState
from tests.core.values import config, hca, node


def view(inventory: Inventory, configuration: Config, before: View | None = None) -> View:
    """What the plugin knows after a scan."""
    previous = {pool.resource: pool for pool in before.pools} if before else {}
    return View(inventory=inventory, pools=pools.build(configuration, inventory, previous))


def test_first_look_says_everything_once() -> None:
    """One line a resource, one a device, also for one that no resource uses."""
    configuration = config(
        {"selectors": {"rdmaDevices": ["mlx5_0"]}}, {"resourceName": "b", "selectors": {"ifNames": ["ib7"]}}
    )
    lines = list(changes(None, view(node(hca(0), hca(1)), configuration)))
    events = [(line.event, dict(line.fields)) for line in lines]
    assert [event for event, _ in events] == ["resource changed", "resource changed", "device used", "device not used"]
    assert events[0][1]["devices"] == ("mlx5_0",)
    assert lines[0].severity is Severity.INFO
    assert lines[1].severity is Severity.WARNING
    assert events[1][1]["slots"] == 0
    assert "ib7" in str(events[1][1]["reason"])
    assert events[3][1]["device"] == "mlx5_1"


def test_steady_node_says_nothing() -> None:
    """A scan that finds nothing new yields no line."""
    first = view(node(hca(0), rdma_cm=None), config())
    assert list(changes(first, view(node(hca(0), rdma_cm=None), config(), first))) == []


def test_change_and_recovery_are_said() -> None:
    """A port that goes down and comes back: a warning with the reason, then an info line."""
    up = view(node(hca(0)), config())
    down = view(node(hca(0, state=PortState.DOWN)), config(), up)
    (went,) = changes(up, down)
    assert went.severity is Severity.WARNING
    assert "port 1 is DOWN" in str(dict(went.fields)["reason"])
    (came,) = changes(down, view(node(hca(0)), config(), down))
    assert came.severity is Severity.INFO


def test_device_that_comes_and_goes() -> None:
    """A new device is said with its verdict, a vanished one by name."""
    one = view(node(hca(0)), config())
    two = view(node(hca(0), hca(1)), config(), one)
    assert [line.event for line in changes(one, two)] == ["resource changed", "device used"]
    assert [line.event for line in changes(two, view(node(hca(0)), config(), two))] == [
        "resource changed",
        "device gone",
    ]


def test_problem_and_its_end() -> None:
    """A problem is said when it comes and when it is solved."""
    whole = view(node(hca(0)), config())
    short = view(node(hca(0), rdma_cm=None), config(), whole)
    (line,) = changes(whole, short)
    assert (line.event, line.severity) == ("problem", Severity.WARNING)
    assert "modprobe rdma_ucm" in str(dict(line.fields)["hint"])
    (line,) = changes(short, view(node(hca(0)), config(), short))
    assert (line.event, dict(line.fields)) == ("problem solved", {"what": "rdma/a: pods get no rdma_cm node"})
