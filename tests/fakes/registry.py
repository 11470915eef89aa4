# SPDX-License-Identifier: Apache-2.0
"""The registration service of the fake kubelet, on kubelet.sock, and which resource names it takes.

pkg/kubelet/cm/devicemanager/plugin/v1beta1/server.go and pkg/apis/core/v1/helper/helpers.go of 1.34.4 and 1.37.2.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import grpc

from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from rdma_plugin.pb import deviceplugin_v1beta1_pb2_grpc as rpc
from tests.fakes.device_manager import DeviceManager
from tests.fakes.plugin_client import PluginError

_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_QUOTA_PREFIX = "requests."


@dataclass(frozen=True, slots=True)
class Registration:
    """One Register call."""

    resource: str
    endpoint: str
    error: str
    """Empty if it was accepted."""


class Registry(rpc.RegistrationServicer):
    """The service on kubelet.sock (plugin/v1beta1/server.go)."""

    def __init__(self, directory: Path, manager: DeviceManager, calls: list[Registration]) -> None:
        self._directory = directory
        self._manager = manager
        self._calls = calls

    def Register(self, request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:  # noqa: N802 - named by gRPC
        """Connect to the plugin before answering, as the kubelet does."""
        error = ""
        try:
            _check(request)
            self._manager.connect_client(request.resource_name, str(self._directory / request.endpoint))
        except PluginError as err:
            error = str(err)
        self._calls.append(Registration(request.resource_name, request.endpoint, error))
        if error:
            context.abort(grpc.StatusCode.UNKNOWN, error)
        return pb.Empty()


def _check(request: pb.RegisterRequest) -> None:
    if request.version != "v1beta1":
        raise PluginError(f'requested API version "{request.version}" is not supported by kubelet')
    if not is_extended_resource_name(request.resource_name):
        raise PluginError(f'the ResourceName "{request.resource_name}" is invalid')


def is_extended_resource_name(name: str) -> bool:
    """Return whether a plugin may register the name (IsExtendedResourceName): `domain/name`, not Kubernetes' own, and short enough for a quota."""
    domain, slash, rest = name.partition("/")
    if not slash or "kubernetes.io/" in name or name.startswith(_QUOTA_PREFIX):
        return False
    domain = _QUOTA_PREFIX + domain
    return len(domain) <= 253 and bool(_DOMAIN.fullmatch(domain)) and bool(_NAME.fullmatch(rest))
