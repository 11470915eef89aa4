# SPDX-License-Identifier: Apache-2.0
"""Answers to the kubelet's calls on one socket: the device plugin service and, for the plugin watcher, registration.

Every answer comes from the pool as it is now; nothing waits for discovery, and nothing that goes wrong in one call
reaches another. Environment and payloads are never logged.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from time import perf_counter
from typing import Any, Never

import grpc

from rdma_plugin.core import allocation
from rdma_plugin.core.errors import AllocationError, AllocationKind, RdmaPluginError
from rdma_plugin.core.model import CharNode, Problem
from rdma_plugin.core.pool import Pool
from rdma_plugin.kubelet import messages
from rdma_plugin.kubelet.session import Call, Session
from rdma_plugin.latest import Latest
from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from rdma_plugin.pb import deviceplugin_v1beta1_pb2_grpc as rpc
from rdma_plugin.pb import pluginregistration_v1_pb2 as registration_pb
from rdma_plugin.pb import pluginregistration_v1_pb2_grpc as registration_rpc

logger = logging.getLogger(__name__)

Check = Callable[[tuple[CharNode, ...]], Awaitable[Mapping[str, Problem]]]
"""Looks at nodes now; returns the path of each unusable one, and what is wrong with it."""
Context = grpc.aio.ServicerContext[Any, Any]

CHECK_DEADLINE_S = 1.0
"""A stat in devtmpfs takes microseconds; the kubelet admits one pod at a time and shouldn't wait long for a bad one."""
STATUS = {
    AllocationKind.UNKNOWN_SLOT: grpc.StatusCode.NOT_FOUND,
    AllocationKind.NOTHING_USABLE: grpc.StatusCode.FAILED_PRECONDITION,
}


class DevicePlugin(rpc.DevicePluginServicer):
    """The device plugin service of one resource; any number of streams and calls at once."""

    def __init__(self, pool: Latest[Pool], check: Check, session: Session, stopping: asyncio.Event) -> None:
        """`stopping` ends the streams; calls under way are finished."""
        self._pool = pool
        self._check = check
        self._session = session
        self._stopping = stopping

    async def GetDevicePluginOptions(self, request: pb.Empty, context: Context) -> pb.DevicePluginOptions:  # noqa: ARG002, N802 - named by gRPC
        """Offer neither optional call: slots of a pool are alike, and nothing is to be done before a start."""
        self._session.called(Call.OPTIONS)
        return pb.DevicePluginOptions()

    async def ListAndWatch(self, request: pb.Empty, context: Context) -> AsyncIterator[pb.ListAndWatchResponse]:  # noqa: ARG002, N802 - named by gRPC
        """Send the current list, then each that differs from the one before; end when the server stops."""
        is_first = self._session.stream_opened()
        context.add_done_callback(lambda _: self._session.stream_ended(is_first=is_first))  # type: ignore[arg-type] # types-grpcio wants a class
        sent = None
        async with aclosing(_until(self._stopping, self._pool)) as pools:
            async for pool in pools:
                if pool.slots != sent:
                    sent = pool.slots
                    yield messages.device_list(pool)

    async def Allocate(self, request: pb.AllocateRequest, context: Context) -> pb.AllocateResponse:  # noqa: N802 - named by gRPC
        """Answer each container's request, in order, with nodes that are char devices at this moment (V4)."""
        started = perf_counter()
        self._session.called(Call.ALLOCATE)
        pool = self._pool.value
        requests = [list(container.devices_ids) for container in request.container_requests]
        try:
            unusable = await self._unusable(pool)
            answers = [allocation.allocate(pool, slot_ids, unusable) for slot_ids in requests]
        except Exception as err:  # noqa: BLE001 - the edge: an escaped error would reach the pod's status as a class name
            self._session.refusals += 1
            await _refuse(context, pool.resource, err)
        self._session.allocations += 1
        response = pb.AllocateResponse(container_responses=[messages.container_answer(answer) for answer in answers])
        logger.info(
            "allocated",
            extra={
                "resource": pool.resource,
                "slots": [slot_id for slot_ids in requests for slot_id in slot_ids],
                "devices": list(dict.fromkeys(device for answer in answers for device in answer.devices)),
                "duration_ms": round((perf_counter() - started) * 1000, 2),
            },
        )
        return response

    async def GetPreferredAllocation(  # noqa: N802 - named by gRPC
        self,
        request: pb.PreferredAllocationRequest,
        context: Context,  # noqa: ARG002 - gRPC's signature
    ) -> pb.PreferredAllocationResponse:
        """Pick slots for each container; not offered, but whoever asks gets an answer (K12)."""
        self._session.called(Call.PREFER)
        return pb.PreferredAllocationResponse(
            container_responses=[
                pb.ContainerPreferredAllocationResponse(
                    deviceIDs=prefer(
                        container.available_deviceIDs, container.must_include_deviceIDs, container.allocation_size
                    )
                )
                for container in request.container_requests
            ]
        )

    async def PreStartContainer(  # noqa: N802 - named by gRPC
        self,
        request: pb.PreStartContainerRequest,  # noqa: ARG002 - gRPC's signature
        context: Context,  # noqa: ARG002 - gRPC's signature
    ) -> pb.PreStartContainerResponse:
        """Do nothing; not asked for, but whoever calls gets an answer."""
        self._session.called(Call.PRE_START)
        return pb.PreStartContainerResponse()

    async def _unusable(self, pool: Pool) -> Mapping[str, Problem]:
        try:
            async with asyncio.timeout(CHECK_DEADLINE_S):
                unusable = await self._check(pool.nodes)
        except (TimeoutError, RdmaPluginError) as err:
            # a node that nobody has looked at is never given: the pod would get a dead path, or another device
            why = str(err) or f"no answer within {CHECK_DEADLINE_S:g} s"
            text = f"{pool.resource}: /dev/infiniband can't be looked at now: {why}"
            raise AllocationError(AllocationKind.NOTHING_USABLE, text) from err
        for path, problem in unusable.items():
            logger.warning(
                "node left out of an answer",
                extra={"resource": pool.resource, "node": path, "why": problem.why, "hint": problem.hint},
            )
        return unusable


class Registration(registration_rpc.RegistrationServicer):
    """The plugin watcher's questions; answered at once, because the kubelet waits one second."""

    def __init__(self, resource: str, endpoint: str, session: Session) -> None:
        """`endpoint` is the socket's path as the kubelet sees it (K2)."""
        self._info = registration_pb.PluginInfo(
            type="DevicePlugin", name=resource, endpoint=endpoint, supported_versions=[messages.VERSION]
        )
        self._session = session

    async def GetInfo(self, request: registration_pb.InfoRequest, context: Context) -> registration_pb.PluginInfo:  # noqa: ARG002, N802 - named by gRPC
        """Say who we are."""
        self._session.called(Call.GET_INFO)
        return self._info

    async def NotifyRegistrationStatus(  # noqa: N802 - named by gRPC
        self,
        request: registration_pb.RegistrationStatus,
        context: Context,  # noqa: ARG002 - gRPC's signature
    ) -> registration_pb.RegistrationStatusResponse:
        """Take note of what became of the registration (K5)."""
        self._session.called(Call.NOTIFY)
        if request.plugin_registered:
            self._session.accepted()
        else:
            self._session.refused(request.error or "no reason given")
        return registration_pb.RegistrationStatusResponse()


def prefer(available: Iterable[str], must_include: Iterable[str], size: int) -> list[str]:
    """Pick `size` slots (fewer if there aren't as many): the required ones, then the lowest ids.

    Slots that aren't available are never returned, so a stale question can't fail an admission.
    """
    free = set(available)
    required = [slot_id for slot_id in dict.fromkeys(must_include) if slot_id in free]
    others = sorted(free.difference(required), key=lambda slot_id: (len(slot_id), slot_id))
    return required + others[: max(0, size - len(required))]


async def _until(stopping: asyncio.Event, source: Latest[Pool]) -> AsyncGenerator[Pool]:
    """Yield the current pool and each later one until `stopping`; a change made just before that is still seen."""
    updates = source.updates()
    stop = asyncio.ensure_future(stopping.wait())
    step = asyncio.ensure_future(anext(updates))
    try:
        while not stop.done():
            await asyncio.wait((stop, step), return_when=asyncio.FIRST_COMPLETED)
            if step.done():
                yield step.result()
                step = asyncio.ensure_future(anext(updates))
        yield source.value
    finally:
        stop.cancel()
        step.cancel()


async def _refuse(context: Context, resource: str, err: Exception) -> Never:
    if isinstance(err, AllocationError):
        logger.warning("allocation refused", extra={"resource": resource, "why": str(err)})
        await context.abort(STATUS[err.kind], str(err))
    logger.error("allocation failed", extra={"resource": resource, "why": repr(err)})
    logger.debug("allocation failed here", exc_info=err)
    await context.abort(grpc.StatusCode.INTERNAL, f"{resource}: internal error of the plugin, see its log")
