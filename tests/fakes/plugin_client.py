# SPDX-License-Identifier: Apache-2.0
"""The fake kubelet's connections to plugins, and the two ways in which kubelets keep them.

pkg/kubelet/cm/devicemanager/plugin/v1beta1/client.go, and the maps of server.go and handler.go, of kubelet 1.34.4 (one
client for each resource name) and 1.37.2 (a list of clients, told apart by path).
"""

from abc import ABC, abstractmethod
from typing import Any

import grpc

from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from rdma_plugin.pb import deviceplugin_v1beta1_pb2_grpc as rpc

DIAL_S = 10.0


class PluginError(Exception):
    """A registration or a call failed; the text is the kubelet's."""


class Client:
    """One connection to a plugin (client.go)."""

    def __init__(self, resource: str, path: str, list_bytes: int) -> None:
        self.resource = resource
        self.path = path
        self.options = pb.DevicePluginOptions()
        self.is_stopped = False
        self._channel = grpc.insecure_channel(
            f"unix:{path}",
            options=[
                ("grpc.default_authority", "localhost"),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.max_receive_message_length", list_bytes),
            ],
        )
        self.stub = rpc.DevicePluginStub(self._channel)

    def connect(self) -> None:
        """Dial and ask for the options; the plugin must serve by now."""
        try:
            grpc.channel_ready_future(self._channel).result(timeout=DIAL_S)
            self.options = self.stub.GetDevicePluginOptions(pb.Empty(), timeout=DIAL_S)
        except grpc.FutureTimeoutError as err:
            raise PluginError(f"failed to dial device plugin: {self.path}: context deadline exceeded") from err
        except grpc.RpcError as err:
            raise PluginError(f"failed to get device plugin options: {describe(err)}") from err

    def close(self) -> None:
        """Close the connection, which ends the stream and whatever call is under way."""
        self._channel.close()


class Clients(ABC):
    """The registered clients, under one of the rules."""

    @abstractmethod
    def add(self, client: Client) -> None:
        """Register it (registerClient)."""

    @abstractmethod
    def drop(self, resource: str, path: str) -> None:
        """Forget what is registered under the names (deregisterClient)."""

    @abstractmethod
    def find(self, resource: str, path: str) -> Client | None:
        """Look up what is registered under the names (getClient)."""

    @abstractmethod
    def every(self) -> list[Client]:
        """All of them (visitClients)."""


class OneForEachName(Clients):
    """Up to 1.36: a new client replaces the one of that resource, and the path doesn't matter."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}

    def add(self, client: Client) -> None:
        """See Clients."""
        self._clients[client.resource] = client

    def drop(self, resource: str, path: str) -> None:
        """See Clients."""
        del path
        self._clients.pop(resource, None)

    def find(self, resource: str, path: str) -> Client | None:
        """See Clients."""
        del path
        return self._clients.get(resource)

    def every(self) -> list[Client]:
        """See Clients."""
        return list(self._clients.values())


class OneForEachPath(Clients):
    """From 1.37: all are kept; a drop takes every client of that path, also one that is live."""

    def __init__(self) -> None:
        self._clients: list[Client] = []

    def add(self, client: Client) -> None:
        """See Clients."""
        self._clients.append(client)

    def drop(self, resource: str, path: str) -> None:
        """See Clients."""
        self._clients = [client for client in self._clients if (client.resource, client.path) != (resource, path)]

    def find(self, resource: str, path: str) -> Client | None:
        """See Clients."""
        return next((client for client in self._clients if (client.resource, client.path) == (resource, path)), None)

    def every(self) -> list[Client]:
        """See Clients."""
        return list(self._clients)


def describe(err: grpc.RpcError) -> str:
    """A failed call in the words of Go's gRPC, as they end up in a pod's status."""
    call: Any = err  # grpc raises one object that is both error and call, which types-grpcio can't express
    name = "".join(part.capitalize() for part in call.code().name.split("_"))
    return f"rpc error: code = {name} desc = {call.details()}"
