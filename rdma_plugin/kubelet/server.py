# SPDX-License-Identifier: Apache-2.0
"""`ResourceServer`: one gRPC server for one resource, which lives as long as one registration.

Bind, serve, stream, end; the next registration gets a new server on a new path. That alone keeps every rule of the
kubelets (a path registered twice is lost, 1.37; the end of an older stream closes ours, up to 1.36), because a server
that has ended is never used again.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

import grpc

from rdma_plugin.core.errors import KubeletError, RdmaPluginError
from rdma_plugin.core.pool import Pool
from rdma_plugin.kubelet import paths, servicer
from rdma_plugin.kubelet.session import Session
from rdma_plugin.latest import Latest
from rdma_plugin.pb import deviceplugin_v1beta1_pb2_grpc as rpc
from rdma_plugin.pb import pluginregistration_v1_pb2_grpc as registration_rpc

logger = logging.getLogger(__name__)
T = TypeVar("T")

GRACE_S = 3.0
"""What a call under way gets at stop; streams end at once."""
OPTIONS = (
    # a kubelet that is gone without closing (stopped, killed with its network namespace) is found within 40 s (K4)
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),  # else gRPC waits a minute for the answer, whatever the line above says
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # a request may name every slot of the largest pool; lists that we send have no limit on our side
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    ("grpc.max_send_message_length", -1),
)


class Blocking(Protocol):
    """Runs a blocking function off the loop, within a deadline; `what` names the work in the error."""

    def __call__(self, what: str, function: Callable[[], T]) -> Awaitable[T]:
        """Return what `function` returns, or raise what it raises; RdmaPluginError if it takes too long."""


def address(path: Path) -> str:
    """Return gRPC's name for a unix socket; gRPC decodes percent signs in it."""
    return f"unix:{quote(str(path))}"


def hold_poller() -> None:
    """Keep grpc.aio's thread for good; else it is ended, and joined on the loop, whenever there is no server."""
    grpc.aio.init_grpc_aio()


async def to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Await `work` to its end; a cancellation that comes meanwhile is raised afterwards.

    grpc.aio's stop waits with asyncio.wait_for, which on Python 3.11 swallows a cancellation that comes together with
    the result: the task would live on, and SIGTERM would hang.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as err:
            cancelled = err
    if cancelled is not None:
        raise cancelled
    task.result()


class ResourceServer:
    """The socket of one resource, from `start` to `stop`; neither can be repeated."""

    def __init__(
        self,
        pool: Latest[Pool],
        check: servicer.Check,
        session: Session,
        path: Path,
        blocking: Blocking,
        endpoint: str | None = None,
    ) -> None:
        """`path` is the public path; with `endpoint`, its name for the kubelet, the plugin watcher is answered too."""
        self.path = path
        self.socket_id: paths.SocketId | None = None
        """Which socket is ours at `path`; None before `start` has returned."""
        self._blocking = blocking
        self._stopping = asyncio.Event()
        self._server = grpc.aio.server(options=OPTIONS)
        service = servicer.DevicePlugin(pool, check, session, self._stopping)
        rpc.add_DevicePluginServicer_to_server(service, self._server)
        if endpoint is not None:
            questions = servicer.Registration(pool.value.resource, endpoint, session)
            registration_rpc.add_RegistrationServicer_to_server(questions, self._server)

    async def start(self) -> None:
        """Serve; when this returns, the socket is at its public path and answers.

        Raises:
            KubeletError: no socket can be made or renamed there. Call `stop` in this case too.
        """
        try:
            self._server.add_insecure_port(address(paths.private(self.path)))
        except RuntimeError as err:
            raise KubeletError(f"{self.path.parent}: gRPC can't bind a socket there") from err
        await self._server.start()
        publishing = asyncio.ensure_future(self._blocking("publish our socket", lambda: paths.publish(self.path)))
        try:
            self.socket_id = await asyncio.shield(publishing)
        except asyncio.CancelledError:
            # the rename goes on in its thread: without knowing its outcome, `stop` would leave the socket behind
            with suppress(RdmaPluginError):
                self.socket_id = await publishing
            raise

    async def stop(self, grace_s: float = GRACE_S) -> None:
        """End the streams, finish the calls under way, remove our socket and no other; all of it, even if cancelled."""
        await to_its_end(self._stop(grace_s))

    async def _stop(self, grace_s: float) -> None:
        self._stopping.set()
        await self._server.stop(grace_s)
        socket_id = self.socket_id
        if socket_id is None:
            return
        try:
            await self._blocking("remove our socket", lambda: paths.remove(self.path, socket_id))
        except (RdmaPluginError, OSError) as err:
            logger.warning("our socket was left behind", extra={"path": str(self.path), "why": str(err)})
