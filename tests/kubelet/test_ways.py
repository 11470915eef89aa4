# SPDX-License-Identifier: Apache-2.0
"""Which of the kubelet's two ways a resource takes, and what is said where the directories aren't as they should be."""

import logging
from pathlib import PurePosixPath

import pytest

from rdma_plugin.kubelet.mode import Mode
from tests.fakes.kubelet import FakeKubelet
from tests.kubelet.running import RESOURCE, events, is_ready, off_loop, our_sockets, plugin


async def wait_slots(kubelet: FakeKubelet, count: int) -> None:
    """Wait until the kubelet has so many healthy slots."""
    await off_loop(kubelet.wait_slots, RESOURCE, count)


async def test_directory_is_missing(any_kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture) -> None:
    """A directory that isn't mounted is named, with the flag; the process goes on and finds it when it comes."""
    moved = any_kubelet.plugin_registry_dir.rename(any_kubelet.plugin_registry_dir.with_name("elsewhere"))
    async with plugin(any_kubelet, mode=Mode.WATCHER) as running:
        contact = await running.wait(lambda contact: contact.last_error is not None)
        assert "--plugin-registry-dir" in str(contact.last_error)
        moved.rename(any_kubelet.plugin_registry_dir)
        await wait_slots(any_kubelet, 3)
    assert len(events(caplog, logging.WARNING)) == 1


async def test_endpoint_is_the_kubelets_path(any_kubelet: FakeKubelet) -> None:
    """A kubelet that sees plugins_registry under another path is given that path (K2)."""
    other = any_kubelet.plugin_registry_dir.with_name("other")
    other.symlink_to(any_kubelet.plugin_registry_dir)
    async with plugin(any_kubelet, mode=Mode.WATCHER, host_path=PurePosixPath(other)):
        await wait_slots(any_kubelet, 3)
        (stream,) = any_kubelet.streams()
        assert stream.startswith(f"{other}/rdma-plugin_")


@pytest.mark.slow
async def test_auto_offers_the_watcher_socket_where_nobody_listens(
    any_kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture
) -> None:
    """Without kubelet.sock the plugin watcher registers us, and the log says why it was that way."""
    hidden = any_kubelet.device_plugin_dir / "kubelet.sock"
    hidden.rename(hidden.with_name("hidden"))
    async with plugin(any_kubelet) as running:
        contact = await running.wait(is_ready)
        assert contact.way == "watcher"
        hidden.with_name("hidden").rename(hidden)
        running.registrar.wake()
        await wait_slots(any_kubelet, 3)
        assert running.contact.way == "watcher"  # a stream that is live is never given up
        await off_loop(any_kubelet.drop_stream, RESOURCE)
        await running.wait(lambda contact: contact.is_ready and contact.way == "kubelet")
    assert events(caplog, logging.WARNING) == [
        "kubelet.sock doesn't answer, socket offered to the kubelet's plugin watcher"
    ]


@pytest.mark.slow
async def test_auto_prefers_kubelet_socket(any_kubelet: FakeKubelet) -> None:
    """A socket that the plugin watcher hasn't asked is withdrawn as soon as kubelet.sock answers."""
    any_kubelet.stop()
    any_kubelet.watches_plugins = False
    async with plugin(any_kubelet) as running:
        await running.wait(lambda contact: contact.way == "watcher")
        await off_loop(any_kubelet.start)
        await running.wait(lambda contact: contact.is_ready and contact.way == "kubelet")
        assert our_sockets(any_kubelet.plugin_registry_dir) == []
