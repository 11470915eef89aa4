# SPDX-License-Identifier: Apache-2.0
"""`ResourceServer` as a kubelet uses it: lists, allocations, its socket, its end."""

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdma_plugin.core.errors import HostError, KubeletError
from rdma_plugin.core.model import CharNode, Problem
from rdma_plugin.core.pool import Pool
from rdma_plugin.host.worker import Worker
from rdma_plugin.kubelet import paths, server, servicer
from rdma_plugin.kubelet.server import ResourceServer
from rdma_plugin.kubelet.session import Session
from rdma_plugin.latest import Latest
from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from rdma_plugin.pb import deviceplugin_v1beta1_pb2_grpc as rpc
from rdma_plugin.pb import pluginregistration_v1_pb2 as registration_pb
from rdma_plugin.pb import pluginregistration_v1_pb2_grpc as registration_rpc
from tests.kubelet.running import DEADLINE_S, all_fine, pool

GONE = Problem(what="uverbs", why="/dev has no such file", hint="look at udev")
NAME = "rdma-plugin_a_1.sock"


class Serving:
    """A server, and a client of it."""

    def __init__(
        self,
        latest: Latest[Pool],
        resource_server: ResourceServer,
        session: Session,
        changed: asyncio.Event,
        channel: grpc.aio.Channel,
    ) -> None:
        self.latest = latest
        self.server = resource_server
        self.session = session
        self.changed = changed
        self.stub: rpc.DevicePluginAsyncStub = rpc.DevicePluginStub(channel)
        self.registration: registration_rpc.RegistrationAsyncStub = registration_rpc.RegistrationStub(channel)

    def watch(self) -> Any:
        """Open a stream."""
        return self.stub.ListAndWatch(pb.Empty())

    async def wait(self, accepts: Callable[[Session], bool]) -> None:
        """Wait until the session is as wanted."""
        async with asyncio.timeout(DEADLINE_S):
            while not accepts(self.session):
                self.changed.clear()
                await self.changed.wait()

    async def allocate(self, *slot_ids: str) -> pb.ContainerAllocateResponse:
        """Ask for one container."""
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=slot_ids)])
        return (await self.stub.Allocate(request)).container_responses[0]


@asynccontextmanager
async def serving(
    directory: Path, first: Pool | None = None, check: servicer.Check = all_fine, endpoint: str | None = None
) -> AsyncIterator[Serving]:
    """Serve a pool of three slots, unless told otherwise, until the end of the block."""
    latest = Latest(first or pool())
    changed = asyncio.Event()
    session = Session(changed.set)
    worker = Worker("test", 5.0, "look in dmesg")
    resource_server = ResourceServer(latest, check, session, directory / NAME, worker.call, endpoint)
    try:
        await resource_server.start()
        async with grpc.aio.insecure_channel(server.address(resource_server.path)) as channel:
            yield Serving(latest, resource_server, session, changed, channel)
    finally:
        await resource_server.stop()
        worker.close()


def listing(directory: Path) -> list[Path]:
    """What lies in a directory."""
    return sorted(directory.iterdir())


def health(response: pb.ListAndWatchResponse) -> str:
    """A list in the words of `pool`."""
    return "".join("+" if device.health == "Healthy" else "-" for device in response.devices)


async def read(call: Any) -> str:
    """The next list of a stream, or `end`."""
    async with asyncio.timeout(DEADLINE_S):
        response = await call.read()
    return health(response) if isinstance(response, pb.ListAndWatchResponse) else "end"


async def test_stream_gets_the_current_list_then_changes(short_dir: Path) -> None:
    """The list as it is comes at once, however old; then each change."""
    async with serving(short_dir) as plugin:
        plugin.latest.set(pool("++-"))
        call = plugin.watch()
        assert await read(call) == "++-"
        plugin.latest.set(pool("---"))
        assert await read(call) == "---"


async def test_equal_list_is_not_sent_again(short_dir: Path) -> None:
    """A pool that changes in something that the kubelet isn't told sends nothing."""
    async with serving(short_dir) as plugin:
        call = plugin.watch()
        assert await read(call) == "+++"
        plugin.latest.set(replace(plugin.latest.value, reason="another"))
        await plugin.stub.GetDevicePluginOptions(pb.Empty())
        plugin.latest.set(pool("+"))
        assert await read(call) == "+"


async def test_each_of_several_streams_gets_every_change(short_dir: Path) -> None:
    """Streams don't steal from each other (K3), and a later one starts with the current list."""
    async with serving(short_dir) as plugin:
        calls = [plugin.watch() for _ in range(3)]
        assert [await read(call) for call in calls] == ["+++"] * 3
        for slots in ("++", "+-", "", "++++"):
            plugin.latest.set(pool(slots))
            assert [await read(call) for call in calls] == [slots] * 3
        assert await read(plugin.watch()) == "++++"
        assert plugin.session.streams == 4


async def test_end_of_a_stream_is_noticed(short_dir: Path) -> None:
    """A stream that the other side drops is counted out, and its end is remembered."""
    async with serving(short_dir) as plugin:
        call = plugin.watch()
        await read(call)
        assert (plugin.session.streams, plugin.session.ended_at) == (1, None)
        call.cancel()
        await plugin.wait(lambda session: session.ended_at is not None)
        assert plugin.session.streams == 0


async def test_allocation_gives_nodes_and_variables(short_dir: Path) -> None:
    """A container gets every node of the pool's HCAs, in order, and its variables."""
    async with serving(short_dir, pool(hcas=2)) as plugin:
        answer = await plugin.allocate("0", "2")
    assert [spec.host_path for spec in answer.devices] == [
        "/dev/infiniband/rdma_cm",
        "/dev/infiniband/uverbs0",
        "/dev/infiniband/uverbs1",
    ]
    assert dict(answer.envs) == {"RDMA_A": "mlx5_0,mlx5_1"}


async def test_each_container_gets_an_answer(short_dir: Path) -> None:
    """Answers come in the order of the requests; an empty request gets an empty one (K11)."""
    requests = [pb.ContainerAllocateRequest(devices_ids=ids) for ids in (["0"], [], ["1", "2"])]
    async with serving(short_dir) as plugin:
        response = await plugin.stub.Allocate(pb.AllocateRequest(container_requests=requests))
    assert [len(answer.devices) for answer in response.container_responses] == [2, 0, 2]


async def test_unknown_slot_is_not_found(short_dir: Path) -> None:
    """An id that the pool doesn't have is refused by name."""
    async with serving(short_dir) as plugin:
        with pytest.raises(grpc.aio.AioRpcError, match="no slot 7") as caught:
            await plugin.allocate("7")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_unusable_pool_is_a_failed_precondition(short_dir: Path) -> None:
    """Without an HCA that could be opened the answer is the reason."""
    async with serving(short_dir, pool(hcas=0)) as plugin:
        with pytest.raises(grpc.aio.AioRpcError, match="as the test wants it") as caught:
            await plugin.allocate("0")
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_hca_whose_node_is_gone_now_is_left_out(short_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nodes are looked at again for each answer: what fails now is left out, with a warning (V4)."""

    async def check(nodes: tuple[CharNode, ...]) -> Mapping[str, Problem]:
        assert [node.name for node in nodes] == ["rdma_cm", "uverbs0", "uverbs1"]
        return {"/dev/infiniband/uverbs0": GONE, "/dev/infiniband/rdma_cm": GONE}

    async with serving(short_dir, pool(hcas=2), check) as plugin:
        answer = await plugin.allocate("0")
    assert [spec.host_path for spec in answer.devices] == ["/dev/infiniband/uverbs1"]
    assert dict(answer.envs) == {"RDMA_A": "mlx5_1"}
    assert GONE.why in str([vars(record) for record in caplog.records if record.levelno == logging.WARNING])


async def test_no_node_left_is_a_failed_precondition(short_dir: Path) -> None:
    """If the last HCA's node is gone now, the pod is refused with that node and its reason."""

    async def check(nodes: tuple[CharNode, ...]) -> Mapping[str, Problem]:
        return {node.path: GONE for node in nodes}

    async with serving(short_dir, check=check) as plugin:
        with pytest.raises(grpc.aio.AioRpcError, match="no such file") as caught:
            await plugin.allocate("0")
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_nodes_that_could_not_be_looked_at_are_not_given(short_dir: Path) -> None:
    """If /dev doesn't answer, the pod is refused and the reason told, rather than handed what may be a dead path."""

    async def check(nodes: tuple[CharNode, ...]) -> Mapping[str, Problem]:
        raise HostError(f"{len(nodes)} nodes hang")

    async with serving(short_dir, check=check) as plugin:
        with pytest.raises(grpc.aio.AioRpcError, match="can't be looked at now: 2 nodes hang") as caught:
            await plugin.allocate("0")
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_fault_of_ours_is_an_internal_error(short_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A bug is told as such, in one short sentence; the server goes on."""

    async def check(nodes: tuple[CharNode, ...]) -> Mapping[str, Problem]:
        raise ZeroDivisionError(str(nodes))

    async with serving(short_dir, check=check) as plugin:
        with pytest.raises(grpc.aio.AioRpcError, match="internal error") as caught:
            await plugin.allocate("0")
        assert caught.value.code() is grpc.StatusCode.INTERNAL
        assert "uverbs" not in str(caught.value.details())
        assert await read(plugin.watch()) == "+++"
    assert any(record.levelno == logging.ERROR for record in caplog.records)


async def test_allocation_is_one_line_without_values(short_dir: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One info line says what was given to whom and how long it took; no environment (Y4)."""
    caplog.set_level(logging.INFO)
    async with serving(short_dir) as plugin:
        await plugin.allocate("1", "0")
    (line,) = [vars(record) for record in caplog.records if record.name.startswith("rdma_plugin")]
    assert (line["resource"], line["slots"], line["devices"]) == ("rdma/a", ["1", "0"], ["mlx5_0"])
    assert 0 < line["duration_ms"] < 5000
    assert "RDMA_A" not in str(line)


async def test_optional_calls_are_not_offered_but_answered(short_dir: Path) -> None:
    """The kubelet is told to make neither; whoever does gets an answer and no crash."""
    wish = pb.ContainerPreferredAllocationRequest(available_deviceIDs=["2", "10", "1"], allocation_size=2)
    async with serving(short_dir) as plugin:
        assert await plugin.stub.GetDevicePluginOptions(pb.Empty()) == pb.DevicePluginOptions()
        await plugin.stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=["0"]))
        answer = await plugin.stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[wish]))
    assert list(answer.container_responses[0].deviceIDs) == ["1", "2"]


IDS = st.lists(st.integers(0, 300).map(str), max_size=40)


@given(available=IDS, must_include=IDS, size=st.integers(-5, 60))
def test_preferred_slots(available: list[str], must_include: list[str], size: int) -> None:
    """Always a subset of the available slots, each once, with the required ones that are among them, and as many as asked."""
    picked = servicer.prefer(available, must_include, size)
    required = set(must_include) & set(available)
    assert set(picked) <= set(available)
    assert len(picked) == len(set(picked)) == max(len(required), min(size, len(set(available))), 0)
    assert required <= set(picked)
    assert picked == servicer.prefer(reversed(available), must_include, size)


async def test_plugin_watcher_is_told_who_we_are(short_dir: Path) -> None:
    """GetInfo names the type, the resource, the version, and the socket's path as the kubelet sees it (K2)."""
    async with serving(short_dir, endpoint="/host/a.sock") as plugin:
        info = await plugin.registration.GetInfo(registration_pb.InfoRequest())
        status = registration_pb.RegistrationStatus(plugin_registered=False, error="not today")
        await plugin.registration.NotifyRegistrationStatus(status)
        assert plugin.session.refusal == "not today"
    assert (info.type, info.name, info.endpoint) == ("DevicePlugin", "rdma/a", "/host/a.sock")
    assert list(info.supported_versions) == ["v1beta1"]


async def test_socket_appears_ready_and_private(short_dir: Path) -> None:
    """One socket, mode 0600, which answers as soon as it is there; nothing is left afterwards."""
    async with serving(short_dir) as plugin:
        assert listing(short_dir) == [plugin.server.path]
        assert plugin.server.path.stat().st_mode & 0o777 == 0o600
    assert listing(short_dir) == []


async def test_directory_with_odd_characters(short_dir: Path) -> None:
    """Spaces, percent signs and hashes in a directory's name don't matter."""
    odd = short_dir / "a b%20#c"
    odd.mkdir()
    async with serving(odd) as plugin:
        assert await read(plugin.watch()) == "+++"


async def test_stop_leaves_a_successor_at_our_path(short_dir: Path) -> None:
    """A socket that took our path while we lived is not removed by our end (K9), and goes on answering."""
    async with serving(short_dir) as old:
        old.server.path.unlink()
        async with serving(short_dir) as new:
            await old.server.stop()
            assert await read(new.watch()) == "+++"
            assert listing(short_dir) == [new.server.path]


async def test_start_in_a_missing_directory(short_dir: Path) -> None:
    """A bind that fails is an error of ours that names the directory."""
    with pytest.raises(KubeletError, match="gone"):
        async with serving(short_dir / "gone"):
            pass


async def test_stop_ends_streams_at_once(short_dir: Path) -> None:
    """With idle readers the end takes no time, and readers see a regular end."""
    async with serving(short_dir) as plugin:
        call = plugin.watch()
        await read(call)
        async with asyncio.timeout(1):
            await plugin.server.stop()
        assert await read(call) == "end"
        assert await call.code() is grpc.StatusCode.OK


async def test_last_list_is_sent_before_the_end(short_dir: Path) -> None:
    """A resource that is removed publishes an empty list and stops: the list still arrives."""
    async with serving(short_dir) as plugin:
        call = plugin.watch()
        await read(call)
        plugin.latest.set(pool(""))
        await plugin.server.stop()
        assert [await read(call), await read(call)] == ["", "end"]


async def test_stop_finishes_a_call_under_way(short_dir: Path) -> None:
    """An Allocate that has begun when the process is told to stop gets its answer."""
    asked, release = asyncio.Event(), asyncio.Event()

    async def check(nodes: tuple[CharNode, ...]) -> Mapping[str, Problem]:
        asked.set()
        await release.wait()
        return await all_fine(nodes)

    async with serving(short_dir, check=check) as plugin:
        call = plugin.watch()
        await read(call)
        answer = asyncio.ensure_future(plugin.allocate("0"))
        await asked.wait()
        stop = asyncio.ensure_future(plugin.server.stop())
        assert await read(call) == "end"  # so the stop has begun
        release.set()
        assert len((await answer).devices) == 2
        await stop


@pytest.mark.slow
async def test_very_long_list_can_be_sent(short_dir: Path) -> None:
    """A list of 100 000 slots passes the default receive limit of older kubelets."""
    async with serving(short_dir, pool("+" * 100_000, numa_nodes=(0, 1))) as plugin:
        assert len(await read(plugin.watch())) == 100_000


def test_path_limit_is_the_kernels(short_dir: Path) -> None:
    """The longest path that we make can be bound, and one byte more can't."""
    directory = short_dir / ("d" * (66 - len(str(short_dir))))
    directory.mkdir()
    paths.check_directory(directory, "--device-plugin-dir")
    name = paths.fresh_name("r" * 99, directory)
    assert len(str(paths.private(directory / name))) == paths.MAX_PATH_BYTES


async def test_stray_reader_does_not_cost_the_registration(short_dir: Path) -> None:
    """Somebody who reads the list beside the kubelet and goes ends nothing; the kubelet's own end does, also if he stays."""
    async with serving(short_dir) as plugin:
        kubelet = plugin.watch()
        await kubelet.read()
        stray = plugin.watch()
        await stray.read()
        stray.cancel()
        await plugin.wait(lambda session: session.streams == 1)
        assert plugin.session.ended_at is None
        stays = plugin.watch()
        await stays.read()
        kubelet.cancel()
        await plugin.wait(lambda session: session.ended_at is not None)
        assert plugin.session.streams == 1
        stays.cancel()


async def test_cancelled_start_leaves_no_socket(short_dir: Path) -> None:
    """A stop in the very moment in which the socket gets its public name removes it all the same."""
    path = short_dir / NAME
    reached, go = threading.Event(), threading.Event()
    worker = Worker("test", 5.0, "look in dmesg")

    async def blocking(what: str, function: Callable[[], Any]) -> Any:
        def slowly() -> Any:
            if what == "publish our socket":
                reached.set()
                go.wait(DEADLINE_S)
            return function()

        return await worker.call(what, slowly)

    resource_server = ResourceServer(Latest(pool()), all_fine, Session(lambda: None), path, blocking)
    starting = asyncio.ensure_future(resource_server.start())
    await asyncio.get_running_loop().run_in_executor(None, reached.wait, DEADLINE_S)
    starting.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    await resource_server.stop()
    assert await worker.call("list", lambda: list(short_dir.iterdir())) == []
    worker.close()


async def test_cancellation_during_a_stop_is_not_lost() -> None:
    """One that comes in the very moment in which gRPC has stopped still ends the task; else SIGTERM would hang."""
    loop = asyncio.get_running_loop()
    completed: asyncio.Future[None] = loop.create_future()

    async def stop_as_grpc_does() -> None:
        await asyncio.wait_for(asyncio.shield(completed), 3)  # noqa: TID251 - as grpc.aio's own code has it

    task = asyncio.ensure_future(server.to_its_end(stop_as_grpc_does()))
    for _ in range(5):
        await asyncio.sleep(0)
    completed.set_result(None)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_stop_that_is_cancelled_is_finished(short_dir: Path) -> None:
    """Whoever is cancelled while it stops a server leaves no socket behind."""
    worker = Worker("test", 5.0, "look in dmesg")
    resource_server = ResourceServer(Latest(pool()), all_fine, Session(lambda: None), short_dir / NAME, worker.call)
    await resource_server.start()
    task = asyncio.ensure_future(resource_server.stop())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await worker.call("list", lambda: list(short_dir.iterdir())) == []
    worker.close()
