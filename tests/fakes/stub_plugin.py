# SPDX-License-Identifier: Apache-2.0
"""A throwaway device plugin on one socket, to find out what a kubelet does: it never registers or heals by itself."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from rdma_plugin.pb import deviceplugin_v1beta1_pb2_grpc as rpc
from rdma_plugin.pb import pluginregistration_v1_pb2 as registration_pb
from rdma_plugin.pb import pluginregistration_v1_pb2_grpc as registration_rpc
from tests.fakes.plugin_client import describe


class StubPlugin(rpc.DevicePluginServicer, registration_rpc.RegistrationServicer):
    """Serves `count` healthy slots at `path` from its making until `stop`."""

    def __init__(self, path: Path, resource: str, count: int = 3) -> None:
        self.path = path
        self.streams = 0
        """Streams that are open now."""
        self.opened = 0
        """Streams that were opened so far."""
        self.resource = resource
        self._slots = [pb.Device(ID=str(number), health="Healthy") for number in range(count)]
        self._notices: list[tuple[bool, str]] = []
        self._changed = threading.Condition()
        self._pool = ThreadPoolExecutor(8)
        self._server = grpc.server(self._pool)
        rpc.add_DevicePluginServicer_to_server(self, self._server)
        registration_rpc.add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{path}")
        self._server.start()

    def register(self, kubelet_socket: Path) -> str:
        """Call Register; return the kubelet's error, empty if it accepted."""
        options = [("grpc.default_authority", "localhost"), ("grpc.use_local_subchannel_pool", 1)]
        request = pb.RegisterRequest(version="v1beta1", endpoint=self.path.name, resource_name=self.resource)
        with grpc.insecure_channel(f"unix:{kubelet_socket}", options=options) as channel:
            try:
                rpc.RegistrationStub(channel).Register(request, timeout=12)
            except grpc.RpcError as err:
                return describe(err)
        return ""

    def stop(self) -> None:
        """End the streams and remove the socket; nothing happens if it was stopped already."""
        self._server.stop(None).wait()
        self._pool.shutdown()

    def wait_streams(self, now: int, opened: int, deadline_s: float = 5) -> bool:
        """Wait until `now` streams are open and `opened` were opened in all; return whether that came about."""
        with self._changed:
            return self._changed.wait_for(lambda: (self.streams, self.opened) == (now, opened), deadline_s)

    def wait_notice(self, deadline_s: float = 5) -> tuple[bool, str]:
        """Wait for NotifyRegistrationStatus; return whether the kubelet accepted, and what it said."""
        with self._changed:
            assert self._changed.wait_for(lambda: self._notices, deadline_s), "no NotifyRegistrationStatus"
            return self._notices[0]

    def GetInfo(  # noqa: N802 - named by gRPC
        self, request: registration_pb.InfoRequest, context: grpc.ServicerContext
    ) -> registration_pb.PluginInfo:
        """Offer the resource on this same socket."""
        del request, context
        return registration_pb.PluginInfo(
            type="DevicePlugin", name=self.resource, endpoint=str(self.path), supported_versions=["v1beta1"]
        )

    def NotifyRegistrationStatus(  # noqa: N802 - named by gRPC
        self, request: registration_pb.RegistrationStatus, context: grpc.ServicerContext
    ) -> registration_pb.RegistrationStatusResponse:
        """Take note."""
        del context
        with self._changed:
            self._notices.append((request.plugin_registered, request.error))
            self._changed.notify_all()
        return registration_pb.RegistrationStatusResponse()

    def GetDevicePluginOptions(self, request: pb.Empty, context: grpc.ServicerContext) -> pb.DevicePluginOptions:  # noqa: N802 - named by gRPC
        """No options."""
        del request, context
        return pb.DevicePluginOptions()

    def ListAndWatch(self, request: pb.Empty, context: grpc.ServicerContext) -> Iterator[pb.ListAndWatchResponse]:  # noqa: N802 - named by gRPC
        """Send the list once and keep the stream open."""
        del request
        over = threading.Event()
        if not context.add_callback(over.set):
            return
        self._count(1)
        try:
            yield pb.ListAndWatchResponse(devices=self._slots)
            over.wait()
        finally:  # a stream that ends before its first list is sent never comes back from the yield
            self._count(-1)

    def GetPreferredAllocation(  # noqa: N802 - named by gRPC
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        """No preference."""
        del request, context
        return pb.PreferredAllocationResponse()

    def Allocate(self, request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:  # noqa: N802 - named by gRPC
        """Give nothing."""
        del context
        return pb.AllocateResponse(
            container_responses=[pb.ContainerAllocateResponse() for _ in request.container_requests]
        )

    def PreStartContainer(  # noqa: N802 - named by gRPC
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        """Nothing to do."""
        del request, context
        return pb.PreStartContainerResponse()

    def _count(self, change: int) -> None:
        with self._changed:
            self.streams += change
            self.opened += max(0, change)
            self._changed.notify_all()
