# SPDX-License-Identifier: Apache-2.0
"""The registrar on a kubelet that restarts, refuses, forgets, drops streams and loses sockets: slots come back each time."""

import asyncio
import itertools
import logging
import os
import socket
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from rdma_plugin.kubelet.lane import Contact
from rdma_plugin.kubelet.mode import Mode
from tests.fakes.kubelet import FakeKubelet
from tests.fakes.stub_plugin import StubPlugin
from tests.kubelet.running import DEADLINE_S, RESOURCE, events, is_ready, off_loop, our_sockets, plugin, pool

EVERY_MODE = pytest.mark.parametrize("mode", list(Mode))
EITHER_WAY = pytest.mark.parametrize("mode", [Mode.KUBELET, Mode.WATCHER])


async def wait_slots(kubelet: FakeKubelet, count: int) -> None:
    """Wait until the kubelet has so many healthy slots."""
    await off_loop(kubelet.wait_slots, RESOURCE, count)


def directory(kubelet: FakeKubelet, mode: Mode) -> Path:
    """Where our sockets lie in a mode."""
    return kubelet.plugin_registry_dir if mode is Mode.WATCHER else kubelet.device_plugin_dir


def is_ready_without(path: Path, contact: Contact) -> bool:
    """The kubelet reads our list, and not by that socket any more."""
    return contact.is_ready and not path.exists()


@EVERY_MODE
async def test_registers_and_leaves_nothing(kubelet: FakeKubelet, mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    """The slots are there, the log says by which way and on what proof, and at the end no socket is left."""
    caplog.set_level(logging.INFO)
    async with plugin(kubelet, mode=mode) as running:
        await wait_slots(kubelet, 3)
        contact = await running.wait(is_ready)
        assert contact.way == ("watcher" if mode is Mode.WATCHER else "kubelet")
        assert (contact.streams, contact.last_error) == (1, None)
        assert contact.last_call is not None
        assert contact.last_call_at is not None
        assert len(our_sockets(directory(kubelet, mode))) == 1
    await wait_slots(kubelet, 0)
    assert our_sockets(kubelet.device_plugin_dir) + our_sockets(kubelet.plugin_registry_dir) == []
    (line,) = [vars(record) for record in caplog.records if record.getMessage() == "registered"]
    assert (line["mode"], line["proof"]) == (contact.way, "ListAndWatch")


@EITHER_WAY
async def test_changes_reach_the_kubelet(any_kubelet: FakeKubelet, mode: Mode) -> None:
    """A pool that changes is a new list on the same stream; pods are admitted by what it says."""
    async with plugin(any_kubelet, mode=mode) as running:
        await wait_slots(any_kubelet, 3)
        running.pools[RESOURCE].set(pool("+--"))
        await wait_slots(any_kubelet, 1)
        first, second = [await off_loop(any_kubelet.run_pod, name, {RESOURCE: 1}) for name in ("a", "b")]
        assert (first.phase, second.reason) == ("Running", "UnexpectedAdmissionError")
        assert "dev /dev/infiniband/uverbs0 rw\n" in first.logs
        assert "Requested: 1, Available: 0" in second.message
        assert len(any_kubelet.registrations) == (0 if mode is Mode.WATCHER else 1)


async def test_many_resources(any_kubelet: FakeKubelet) -> None:
    """32 resources register side by side, each on its own socket."""
    pools = [pool("+" * (1 + number), resource=f"rdma/r{number}") for number in range(32)]
    async with plugin(any_kubelet, *pools):
        for number in range(32):
            await off_loop(any_kubelet.wait_slots, f"rdma/r{number}", 1 + number)
        assert len(our_sockets(any_kubelet.device_plugin_dir)) == 32


@pytest.mark.slow
@EVERY_MODE
async def test_kubelet_restarts(kubelet: FakeKubelet, mode: Mode) -> None:
    """The kubelet wipes its directory and starts anew: the same slots come back, on a path never used before."""
    async with plugin(kubelet, mode=mode) as running:
        used: set[str] = set()
        for _ in range(3):
            await wait_slots(kubelet, 3)
            await running.wait(is_ready)
            now = {
                path.name for path in our_sockets(kubelet.device_plugin_dir) + our_sockets(kubelet.plugin_registry_dir)
            }
            assert len(now) == 1
            assert not now & used
            used |= now
            await off_loop(kubelet.restart)
        await wait_slots(kubelet, 3)


@pytest.mark.slow
@EVERY_MODE
async def test_kubelet_comes_late(kubelet: FakeKubelet, mode: Mode, caplog: pytest.LogCaptureFixture) -> None:
    """Without a kubelet the registrar waits, says so once, and registers when there is one (K6)."""
    kubelet.stop()
    async with plugin(kubelet, mode=mode) as running:
        if mode is not Mode.WATCHER:
            await off_loop(lambda: None)
            async with asyncio.timeout(5):
                while not events(caplog, logging.WARNING):  # noqa: ASYNC110 - the log is read as a person reads it
                    await asyncio.sleep(0.01)
        assert not running.contact.is_ready
        await off_loop(kubelet.start)
        await wait_slots(kubelet, 3)
        await running.wait(is_ready)
    assert len(events(caplog, logging.WARNING)) == (0 if mode is Mode.WATCHER else 1)


@EITHER_WAY
async def test_dropped_stream_is_registered_again_at_once(kubelet: FakeKubelet, mode: Mode) -> None:
    """A stream that ends without us is followed by a new registration, not after a pause: nothing else heals it (K4)."""
    async with plugin(kubelet, mode=mode) as running:
        for _ in range(2):
            await wait_slots(kubelet, 3)
            (before,) = our_sockets(directory(kubelet, mode))
            await off_loop(kubelet.drop_stream, RESOURCE)
            await running.wait(partial(is_ready_without, before), 1)
            await wait_slots(kubelet, 3)
            assert len(kubelet.streams()) == 1


@pytest.mark.slow
@EITHER_WAY
async def test_own_socket_is_deleted(kubelet: FakeKubelet, mode: Mode) -> None:
    """Our socket is gone though its stream lives on: a new one is there within about a second (K4)."""
    async with plugin(kubelet, mode=mode) as running:
        await wait_slots(kubelet, 3)
        (path,) = our_sockets(directory(kubelet, mode))
        await running.wait(is_ready)
        path.unlink()
        await running.wait(lambda contact: contact.is_ready and our_sockets(path.parent) not in ([], [path]), 3)
        await wait_slots(kubelet, 3)


@pytest.mark.slow
async def test_own_socket_is_replaced(any_kubelet: FakeKubelet) -> None:
    """Somebody else's socket at our path is noticed too; it isn't ours to remove."""
    async with plugin(any_kubelet, mode=Mode.KUBELET) as running:
        await running.wait(is_ready)
        (path,) = our_sockets(any_kubelet.device_plugin_dir)
        path.unlink()
        other = StubPlugin(path, "rdma/other")
        await running.wait(lambda contact: contact.is_ready and len(our_sockets(path.parent)) == 2, 3)
    assert our_sockets(path.parent) == [path]
    await off_loop(other.stop)


async def test_wake_makes_it_quick(any_kubelet: FakeKubelet) -> None:
    """With an event from the directory nobody waits for the look by timer."""
    async with plugin(any_kubelet, mode=Mode.KUBELET) as running:
        await running.wait(is_ready)
        (path,) = our_sockets(any_kubelet.device_plugin_dir)
        path.unlink()
        running.registrar.wake()
        await running.wait(lambda contact: contact.is_ready and our_sockets(path.parent) != [], 0.5)


@pytest.mark.slow
async def test_kubelet_socket_is_made_anew(any_kubelet: FakeKubelet) -> None:
    """Another socket at kubelet.sock means another kubelet, even if the old stream lives: it ends, and a new one follows."""
    at = any_kubelet.device_plugin_dir / "kubelet.sock"
    async with plugin(any_kubelet, mode=Mode.KUBELET) as running:
        await running.wait(is_ready)
        status = at.stat()
        os.utime(at, (status.st_atime, status.st_mtime + 1))
        await running.wait(lambda contact: contact.is_ready and len(any_kubelet.registrations) == 2, 3)
        await wait_slots(any_kubelet, 3)


@pytest.mark.slow
async def test_kubelet_socket_is_gone(any_kubelet: FakeKubelet) -> None:
    """Without kubelet.sock the stream is kept, as nothing better is to be had, but the plugin isn't ready any more."""
    at = any_kubelet.device_plugin_dir / "kubelet.sock"
    async with plugin(any_kubelet, mode=Mode.KUBELET) as running:
        await running.wait(is_ready)
        hidden = at.rename(at.with_name("hidden"))
        running.registrar.wake()
        contact = await running.wait(lambda contact: not contact.is_current, 3)
        assert (contact.streams, contact.is_ready) == (1, False)
        hidden.rename(at)
        await running.wait(is_ready, 3)
        assert len(any_kubelet.registrations) == 1


@pytest.mark.slow
@EITHER_WAY
async def test_refused_registration_is_tried_again(
    kubelet: FakeKubelet, mode: Mode, caplog: pytest.LogCaptureFixture
) -> None:
    """A kubelet that refuses is asked again with a growing pause and a fresh socket; its words are in the log once (K5)."""
    await off_loop(kubelet.refuse, 3)
    async with plugin(kubelet, mode=mode) as running:
        contact = await running.wait(lambda contact: contact.last_error is not None)
        assert "refused because a test asked for it" in str(contact.last_error)
        await wait_slots(kubelet, 3)
        await running.wait(is_ready)
        assert running.contact.last_error is None
    if mode is Mode.KUBELET:
        endpoints = [call.endpoint for call in kubelet.registrations]
        assert len(set(endpoints)) == len(endpoints) == 4
    assert len(events(caplog, logging.WARNING)) == 1


@pytest.mark.slow
async def test_accepted_without_a_stream(any_kubelet: FakeKubelet) -> None:
    """A registration that no stream follows within two seconds is done again."""
    any_kubelet.open_streams(are_opened=False)
    async with plugin(any_kubelet, mode=Mode.KUBELET) as running:
        await running.wait(lambda contact: contact.last_error is not None, 4)
        any_kubelet.open_streams(are_opened=True)
        await wait_slots(any_kubelet, 3)
        await running.wait(is_ready)


@pytest.mark.slow
async def test_flapping_stream_slows_down(any_kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture) -> None:
    """Streams that never last are followed by longer and longer pauses, and by one warning instead of many."""
    async with plugin(any_kubelet, mode=Mode.KUBELET) as running:
        async with asyncio.timeout(10):
            while len(any_kubelet.registrations) < 6:
                await running.wait(lambda contact: contact.streams > 0)
                await off_loop(any_kubelet.drop_stream, RESOURCE)
                await running.wait(lambda contact: contact.streams == 0)
        assert "stream ended" in str(running.contact.last_error)
        await wait_slots(any_kubelet, 3)
    assert len(events(caplog, logging.WARNING)) == 1


@pytest.mark.slow
@EITHER_WAY
async def test_older_of_two_instances_ends(kubelet: FakeKubelet, mode: Mode) -> None:
    """A rolling update: whatever the end of the old instance does to the new one's stream, the slots are back (K9)."""
    async with plugin(kubelet, mode=mode) as old:
        await wait_slots(kubelet, 3)
        await old.wait(is_ready)
        (olds,) = our_sockets(directory(kubelet, mode))
        async with plugin(kubelet, pool("++++"), mode=mode) as new:
            await wait_slots(kubelet, 4)
            await new.wait(is_ready)
            (first,) = set(our_sockets(directory(kubelet, mode))) - {olds}
            await old.stop()
            if kubelet.rule == "single":  # the kubelet closes the new instance's stream too
                await new.wait(partial(is_ready_without, first))
            await wait_slots(kubelet, 4)
            assert len(our_sockets(directory(kubelet, mode))) == 1
            pod = await off_loop(kubelet.run_pod, "after", {RESOURCE: 1})
            assert pod.phase == "Running", pod


@pytest.mark.slow
@EITHER_WAY
@pytest.mark.parametrize("end", ["stopped", "killed"])
async def test_newer_of_two_instances_ends(
    kubelet: FakeKubelet, mode: Mode, end: str, caplog: pytest.LogCaptureFixture
) -> None:
    """A rollback: up to 1.36 the newer one's end voids the older one's registration without a sign, which registers again."""
    caplog.set_level(logging.INFO)
    async with plugin(kubelet, mode=mode) as old:
        await wait_slots(kubelet, 3)
        await old.wait(is_ready)
        (first,) = our_sockets(directory(kubelet, mode))
        newer = StubPlugin(first.with_name(f"{first.name.rpartition('_')[0]}_ffffffff.sock"), RESOURCE, count=4)
        if mode is Mode.KUBELET:
            await off_loop(newer.register, first.with_name("kubelet.sock"))
        await wait_slots(kubelet, 4)
        old.registrar.wake()
        await old.wait(lambda _: "another instance of the plugin serves the resource too" in events(caplog))
        await off_loop(newer.stop)
        if end == "killed":
            leave_dead_socket(newer.path)
        await old.wait(partial(is_ready_without, first))
        await wait_slots(kubelet, 3)
        pod = await off_loop(kubelet.run_pod, "after", {RESOURCE: 1})
        assert pod.phase == "Running", pod
        assert not newer.path.exists()


async def test_dead_sockets_of_earlier_runs_go(any_kubelet: FakeKubelet) -> None:
    """What a killed process left is removed at start, in both directories; other files stay."""
    name = "rdma-plugin_rdma_a_00000000.sock"
    folders = (any_kubelet.device_plugin_dir, any_kubelet.plugin_registry_dir)
    for folder in folders:
        (folder / "rdma-plugin_note").write_text("kept")
        await off_loop(leave_dead_socket, folder / name)
    async with plugin(any_kubelet, mode=Mode.KUBELET) as running:
        await running.wait(lambda _: not any((folder / name).exists() for folder in folders))
        await running.wait(is_ready)
    assert all((folder / "rdma-plugin_note").exists() for folder in folders)


def leave_dead_socket(path: Path) -> None:
    """Do as a process that is killed while it serves."""
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


def test_contact_is_ready_only_as_a_whole() -> None:
    """Ready means accepted, read, and by the sockets that are there."""
    whole = Contact(is_registered=True, is_current=True, streams=1)
    assert whole.is_ready
    parts = (replace(whole, is_registered=False), replace(whole, is_current=False), replace(whole, streams=0))
    assert not any(part.is_ready for part in parts)


async def test_two_instances_after_a_kubelet_restart(kubelet: FakeKubelet, caplog: pytest.LogCaptureFixture) -> None:
    """Both register at the same moment, so nobody can say which the kubelet took last: whichever ends, capacity is back."""
    caplog.set_level(logging.INFO)
    async with plugin(kubelet) as survivor:
        await survivor.wait(is_ready)
        async with plugin(kubelet) as other:
            await other.wait(is_ready)
            await off_loop(kubelet.restart)
            await survivor.wait(is_ready)
            await other.wait(is_ready)
            survivor.registrar.wake()
            await survivor.wait(lambda _: "another instance of the plugin serves the resource too" in events(caplog))
            sockets = our_sockets(kubelet.device_plugin_dir)
        await survivor.wait(
            lambda contact: is_ready(contact) and not set(sockets) & set(our_sockets(kubelet.device_plugin_dir))
        )
        async with asyncio.timeout(DEADLINE_S):
            # up to 1.36 the end of the other's client still closes ours once: a pod that comes right then is refused
            for number in itertools.count():
                await wait_slots(kubelet, 3)
                pod = await off_loop(kubelet.run_pod, f"after{number}", {RESOURCE: 1})
                if pod.phase == "Running":
                    break
