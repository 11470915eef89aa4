# SPDX-License-Identifier: Apache-2.0
"""One registration of one resource, from a fresh socket to its end, by either of the kubelet's two ways.

Says how it ended; the registrar decides what comes next. The kubelet's rules are in its
pkg/kubelet/cm/devicemanager/plugin/v1beta1/{server,handler}.go (1.34, 1.37): serve before registering, never register
while a stream of ours is live, never use a path twice.
"""

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from time import monotonic

import grpc

from rdma_plugin.core.errors import KubeletError, RdmaPluginError
from rdma_plugin.kubelet import messages, server
from rdma_plugin.kubelet.directories import Directories
from rdma_plugin.kubelet.paths import SocketId
from rdma_plugin.kubelet.reports import Reports
from rdma_plugin.kubelet.server import ResourceServer
from rdma_plugin.kubelet.session import Call, Session
from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from rdma_plugin.pb import deviceplugin_v1beta1_pb2_grpc as rpc

REGISTER_DEADLINE_S = 15.0
"""The kubelet dials us back inside Register, for up to 10 s (plugin/v1beta1/client.go)."""
STREAM_DEADLINE_S = 2.0
"""The kubelet opens its stream right after it has accepted."""
NOTIFY_DEADLINE_S = 15.0
"""From GetInfo to NotifyRegistrationStatus: the kubelet dials us in between, for up to 10 s."""
BUSY_S = 2.0
"""After GetInfo the kubelet is at work on us: a bad moment to withdraw the socket."""
SILENT_S = 10.0
"""The plugin watcher asks within a second or two."""
PROBE_S = 5.0
"""How often a kubelet.sock that nobody listened on is dialled again though the file is the same."""
SHORT_LIFE_S = 1.0
"""A stream that ends sooner is no proof that the registration works."""
BEREFT_S = 1.0
"""Up to 1.36 the end of the instance that registered last voids our registration and leaves our stream open, so that
nothing tells us (devicemanager/manager.go: endpoints). Unless that one is back by then, we register again."""
CHANNEL_OPTIONS = (
    # the default is the percent-encoded path, which Go's servers refuse (K14)
    ("grpc.default_authority", "localhost"),
    # else a new channel inherits the reconnection pause of an earlier one to the same path
    ("grpc.use_local_subchannel_pool", 1),
)


class Way(StrEnum):
    """How a resource is announced."""

    KUBELET = "kubelet"
    """We call Register on kubelet.sock."""
    WATCHER = "watcher"
    """The kubelet's plugin watcher finds our socket in plugins_registry."""


class End(StrEnum):
    """Why a registration is over."""

    FAILED = "failed"
    """It never worked."""
    ENDED = "ended"
    """It worked, and the kubelet's stream or our socket is gone."""
    MOVED = "moved"
    """It worked, or might have, and we ended it: there is a better one to be had now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a registration ended."""

    end: End
    why: str
    lived_s: float = 0.0
    """How long the kubelet's stream lasted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What one registration sets out to do."""

    resource: str
    way: Way
    kubelet_socket: SocketId | None
    """The kubelet.sock that answered a moment ago; for the way of the plugin watcher it doesn't matter."""
    is_fallback: bool
    """Give way as soon as kubelet.sock answers."""
    is_suspect: bool
    """Earlier streams were short, so the next one counts only once it has lasted."""

    @property
    def proof_s(self) -> float:
        """How long a stream must have lasted to count."""
        return SHORT_LIFE_S if self.is_suspect else 0.0


class Registration:
    """One attempt: `run` it, then `stop` it, whatever `run` gave."""

    def __init__(
        self,
        plan: Plan,
        resource_server: ResourceServer,
        session: Session,
        directories: Directories,
        reports: Reports,
        changed: asyncio.Event,
    ) -> None:
        """`changed` is set by whoever changes what is judged here."""
        self.plan = plan
        self.session = session
        self._server = resource_server
        self._directories = directories
        self._reports = reports
        self._changed = changed
        self._is_proven = False
        self._is_silent = False
        self._started_at = monotonic()
        self._probed_at = self._started_at
        self._dead_socket = directories.kubelet_socket

    @property
    def path(self) -> str:
        """Our socket."""
        return str(self._server.path)

    @property
    def is_current(self) -> bool:
        """True if the sockets that this registration was made with are the ones that are there."""
        if self._directories.is_lost(self._server.path):
            return False
        return self.plan.way is Way.WATCHER or self._directories.kubelet_socket == self.plan.kubelet_socket

    async def run(self) -> Ending:
        """Serve, register, and return when it is over.

        Raises:
            RdmaPluginError: it didn't come about.
        """
        await self._server.start()
        if self._server.socket_id is not None:
            self._directories.hold(self._server.path, self._server.socket_id)
        if self.plan.way is Way.KUBELET:
            await self._register()
        while True:
            self._changed.clear()
            ending = self._ending() or await self._withdrawal()
            if ending is not None:
                return ending
            self._say()
            try:
                async with asyncio.timeout(self._pause_s()):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def stop(self) -> None:
        """End the streams, finish the calls under way, remove the socket."""
        self._directories.release(self._server.path)
        await self._server.stop()
        self._directories.forget(self._server.path)

    async def _register(self) -> None:
        kubelet = self._directories.kubelet_path
        request = pb.RegisterRequest(
            version=messages.VERSION,
            endpoint=self._server.path.name,
            resource_name=self.plan.resource,
            options=pb.DevicePluginOptions(),
        )
        async with grpc.aio.insecure_channel(server.address(kubelet), options=CHANNEL_OPTIONS) as channel:
            try:
                await rpc.RegistrationStub(channel).Register(request, timeout=REGISTER_DEADLINE_S)
            except grpc.aio.AioRpcError as err:
                raise KubeletError(
                    f"Register on {kubelet} failed: {err.code().name}: {err.details()}; see the kubelet's log"
                ) from err
        self.session.accepted()

    def _ending(self) -> Ending | None:
        now, session = monotonic(), self.session

        def is_over(since: float | None, limit_s: float) -> bool:
            return not session.streams and since is not None and now >= since + limit_s

        is_moved = self.plan.way is Way.KUBELET and self._directories.kubelet_socket not in (
            None,
            self.plan.kubelet_socket,
        )
        bereft_at = self._directories.bereft_at(self._server.path)
        is_bereft = bereft_at is not None and now >= bereft_at + BEREFT_S
        reasons = (
            (session.ended_at is not None, End.ENDED, "the kubelet's stream ended"),
            (self._directories.is_lost(self._server.path), End.ENDED, "our socket was removed or replaced"),
            (is_moved, End.MOVED, "kubelet.sock was made anew"),
            (is_bereft, End.MOVED, "another instance, which had registered after us, ended"),
            (session.refusal is not None, End.FAILED, f"the kubelet refused: {session.refusal}"),
            (is_over(session.accepted_at, STREAM_DEADLINE_S), End.FAILED, "accepted, but no ListAndWatch came"),
            (is_over(session.asked_at, NOTIFY_DEADLINE_S), End.FAILED, "GetInfo came, but no word about the outcome"),
        )
        return next((self._end(end, why) for is_true, end, why in reasons if is_true), None)

    def _end(self, end: End, why: str) -> Ending:
        return Ending(end=end, why=why, lived_s=self.session.lived_s)

    async def _withdrawal(self) -> Ending | None:
        """End in favour of kubelet.sock if somebody listens there now and the plugin watcher isn't at work on us."""
        found, session, now = self._directories.kubelet_socket, self.session, monotonic()
        if not self.plan.is_fallback or session.streams or found is None:
            return None
        if session.asked_at is not None and now < session.asked_at + BUSY_S:
            return None
        if found == self._dead_socket and now < self._probed_at + PROBE_S:
            return None
        try:
            await self._directories.probe()
        except RdmaPluginError:
            self._dead_socket, self._probed_at = found, monotonic()
            return None
        return self._ending() or self._end(End.MOVED, "kubelet.sock answers")

    def _say(self) -> None:
        session, now = self.session, monotonic()
        if session.opened_at is not None and not self._is_proven and now >= session.opened_at + self.plan.proof_s:
            self._is_proven = True
            self._reports.registered(self.plan.resource, self.plan.way, Call.LIST_AND_WATCH, self.path)
        is_unasked = self.plan.way is Way.WATCHER and session.last_call is None
        if is_unasked and not self._is_silent and now >= self._started_at + SILENT_S:
            self._is_silent = True
            self._reports.is_silent(self.plan.resource, self.path)

    def _pause_s(self) -> float | None:
        """Seconds until something is due though nothing happens; None if nothing is."""
        session, now = self.session, monotonic()
        bereft_at = self._directories.bereft_at(self._server.path)
        due = [at + BEREFT_S for at in (bereft_at,) if at is not None]
        if session.opened_at is not None:
            due.append(session.opened_at + self.plan.proof_s)
        else:
            due.append(self._started_at + SILENT_S)
            due += [at + STREAM_DEADLINE_S for at in (session.accepted_at,) if at is not None]
            due += [at + limit for at in (session.asked_at,) if at is not None for limit in (BUSY_S, NOTIFY_DEADLINE_S)]
            if self.plan.is_fallback:
                due.append(self._probed_at + PROBE_S)
        return min((at - now for at in due if at > now), default=None)
