# SPDX-License-Identifier: Apache-2.0
"""What kubelets do to plugins that register in ways that ours avoids, and that the fake kubelet does the same.

A throwaway plugin breaks the rules on purpose. `rule` tells kubelets up to 1.36 (`single`: one client for each resource
name) from those of 1.37 (`list`: one for each socket path).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.e2e.conftest import Kubelet
from tests.fakes.stub_plugin import StubPlugin

RESOURCE = "rdma/rules"
Offer = Callable[[Path], StubPlugin]

pytestmark = pytest.mark.slow


@pytest.fixture
def serve() -> Iterator[Offer]:
    """Make a plugin that serves at a path; stopped at the end."""
    with ExitStack() as stack:

        def start(path: Path) -> StubPlugin:
            plugin = StubPlugin(path, RESOURCE)
            stack.callback(plugin.stop)
            return plugin

        yield start


def register(kubelet: Kubelet, plugin: StubPlugin) -> str:
    """Register by kubelet.sock; return the error, empty if there is none."""
    return plugin.register(kubelet.device_plugin_dir / "kubelet.sock")


def healthy(kubelet: Kubelet) -> int:
    """How many slots can be allocated."""
    return sum(kubelet.slots(RESOURCE).values())


def test_end_of_the_older_of_two_instances(kubelet: Kubelet, serve: Offer) -> None:
    """Up to 1.36 the end of the older one closes the newer one's stream for good; a new registration heals it."""
    old, new = (serve(kubelet.device_plugin_dir / name) for name in ("a.sock", "b.sock"))
    for plugin in (old, new):
        assert register(kubelet, plugin) == ""
        assert plugin.wait_streams(1, 1)
    kubelet.wait_slots(RESOURCE, 3)
    old.stop()
    if kubelet.rule == "list":
        assert not new.wait_streams(0, 1, deadline_s=1)
        assert healthy(kubelet) == 3
        return
    assert new.wait_streams(0, 1)
    kubelet.wait_slots(RESOURCE, 0)
    assert register(kubelet, new) == ""
    assert new.wait_streams(1, 2)
    kubelet.wait_slots(RESOURCE, 3)


def test_same_socket_registers_while_its_stream_is_live(kubelet: Kubelet, serve: Offer) -> None:
    """Up to 1.36 that makes a second stream; from 1.37 it is refused, and the path is lost even for a new process."""
    path = kubelet.device_plugin_dir / "c.sock"
    plugin = serve(path)
    assert register(kubelet, plugin) == ""
    assert plugin.wait_streams(1, 1)
    second = register(kubelet, plugin)
    if kubelet.rule == "single":
        assert second == ""
        assert plugin.wait_streams(2, 2)
        return
    assert f"device plugin already connected: {path}" in second
    plugin.stop()
    assert "already connected" in register(kubelet, serve(path))
    fresh = serve(kubelet.device_plugin_dir / "d.sock")
    assert register(kubelet, fresh) == ""
    kubelet.wait_slots(RESOURCE, 3)


def test_same_path_registers_after_its_stream_ended(kubelet: Kubelet, serve: Offer) -> None:
    """A path may be used again once its stream has ended."""
    for _ in range(5):
        plugin = serve(kubelet.device_plugin_dir / "e.sock")
        assert register(kubelet, plugin) == ""
        assert plugin.wait_streams(1, 1)
        kubelet.wait_slots(RESOURCE, 3)
        plugin.stop()
        kubelet.wait_slots(RESOURCE, 0)


def test_bad_registrations_are_refused(kubelet: Kubelet, serve: Offer) -> None:
    """A socket that isn't served can't register, and a name without a domain can't either."""
    plugin = serve(kubelet.device_plugin_dir / "f.sock")
    plugin.resource = "rules"
    assert "invalid" in register(kubelet, plugin)
    assert healthy(kubelet) == 0


def test_end_of_an_offered_socket(kubelet: Kubelet, serve: Offer) -> None:
    """The plugin watcher registers what it finds, and forgets it when the socket goes; a fresh path works at once."""
    for name in ("g0.sock", "g1.sock"):
        plugin = serve(kubelet.plugin_registry_dir / name)
        assert plugin.wait_streams(1, 1)
        kubelet.wait_slots(RESOURCE, 3)
        assert plugin.wait_notice() == (True, "")
        plugin.stop()
        kubelet.wait_slots(RESOURCE, 0)


def test_fresh_socket_is_offered_before_the_old_one_is_gone(kubelet: Kubelet, serve: Offer) -> None:
    """Up to 1.36 the removal of the old socket closes the new one's stream; from 1.37 it doesn't."""
    old = serve(kubelet.plugin_registry_dir / "h0.sock")
    assert old.wait_streams(1, 1)
    new = serve(kubelet.plugin_registry_dir / "h1.sock")
    assert new.wait_streams(1, 1)
    old.stop()
    assert new.wait_streams(0, 1, deadline_s=5 if kubelet.rule == "single" else 2) == (kubelet.rule == "single")


def test_restart_wipes_sockets_and_nothing_else(kubelet: Kubelet, serve: Offer) -> None:
    """A kubelet that starts deletes every socket in device-plugins and keeps files; offered sockets are found again."""
    ours, offered = serve(kubelet.device_plugin_dir / "i.sock"), serve(kubelet.plugin_registry_dir / "i.sock")
    note = kubelet.device_plugin_dir / "note"
    note.write_text("kept")
    kubelet.wait_slots(RESOURCE, 3)
    kubelet.restart()
    assert not ours.path.exists()
    assert note.read_text() == "kept"
    assert offered.wait_streams(1, 2)
    kubelet.wait_slots(RESOURCE, 3)
