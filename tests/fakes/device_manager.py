# SPDX-License-Identifier: Apache-2.0
"""The kubelet's device manager: clients of plugins, their lists, and what becomes of them when a stream ends.

Plays both rules of registration, as read in the kubelet's pkg/kubelet/cm/devicemanager of 1.34.4 (`single`) and 1.37.2
(`list`): plugin/v1beta1/{server,handler,client}.go and manager.go, whose function names stand at the methods. Left out:
NUMA alignment and the five minutes after which a stopped resource is forgotten.
"""

import threading
from typing import Literal

import grpc

from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from tests.fakes.plugin_client import Client, Clients, OneForEachName, OneForEachPath, PluginError

Rule = Literal["single", "list"]
LIST_BYTES: dict[Rule, int] = {"single": 4 << 20, "list": 16 << 20}
"""gRPC's receive limit for a list: the default in older kubelets, raised in newer ones."""


class DeviceManager:
    """Everything that a kubelet process knows of plugins; ends with the process."""

    def __init__(self, rule: Rule, changed: threading.Condition) -> None:
        """`changed` is notified after each change of `devices`; it guards all that is here."""
        self.rule = rule
        self.devices: dict[str, dict[str, bool]] = {}
        """Resource -> slot id -> healthy."""
        self.streams: list[str] = []
        self._followed: set[Client] = set()
        """Paths whose stream is open, one entry for each stream."""
        self.refuses = 0
        """How many of the next registrations to fail."""
        self.opens_streams = True
        """False: registrations are accepted and no ListAndWatch follows."""
        self._changed = changed
        self._clients: Clients = OneForEachName() if rule == "single" else OneForEachPath()
        self._endpoints: dict[str, Client] = {}  # manager.go: endpoints
        self._store: dict[str, dict[str, Client]] = {}  # manager.go: endpointStore (1.37)
        self._threads: list[threading.Thread] = []

    def connect_client(self, resource: str, path: str) -> None:
        """Dial a plugin that registered, then follow its list (handler.go: connectClient)."""
        client = Client(resource, path, LIST_BYTES[self.rule])
        with self._changed:
            self._clients.add(client)
        try:
            self._refuse_if_asked()
            client.connect()
            self._plugin_connected(client)
        except PluginError:
            with self._changed:
                self._clients.drop(resource, path)
            client.close()
            raise
        if self.opens_streams:
            thread = threading.Thread(target=self._run_client, args=(client,), daemon=True)
            with self._changed:
                self._threads.append(thread)
                self._followed.add(client)
            thread.start()

    def deregister(self, resource: str, path: str) -> None:
        """The plugin watcher's socket is gone (handler.go: DeRegisterPlugin)."""
        with self._changed:
            client = self._clients.find(resource, path)
        if client is not None:
            self._disconnect_client(client)

    def endpoint(self, resource: str) -> Client | None:
        """The client that allocations of a resource go to; None if it never registered."""
        with self._changed:
            return self._endpoints.get(resource)

    def drop_stream(self, resource: str) -> None:
        """End the stream as a kubelet in trouble would: the connection closes."""
        client = self.endpoint(resource)
        assert client is not None, f"{resource} never registered"
        client.close()

    def end(self) -> None:
        """The process is gone: every connection closes at once."""
        with self._changed:
            clients = set(self._followed)
        for client in clients:
            client.close()
        for thread in self._threads:
            thread.join()

    def _refuse_if_asked(self) -> None:
        with self._changed:
            if self.refuses:
                self.refuses -= 1
                raise PluginError("refused because a test asked for it")

    def _run_client(self, client: Client) -> None:
        """handler.go: runClient; the client that is looked up afterwards need not be the one that ended."""
        self._follow(client)
        with self._changed:
            found = self._clients.find(client.resource, client.path)
        if found is not None:
            self._disconnect_client(found)

    def _follow(self, client: Client) -> None:
        """client.go: Run."""
        with self._changed:
            self.streams.append(client.path)
            self._changed.notify_all()
        try:
            for response in client.stub.ListAndWatch(pb.Empty()):
                listed = {device.ID: device.health == "Healthy" for device in response.devices}
                with self._changed:
                    self.devices[client.resource] = listed
                    self._changed.notify_all()
        except (grpc.RpcError, ValueError):  # ValueError: the channel was closed before the call
            pass
        with self._changed:
            self.streams.remove(client.path)
            self._followed.discard(client)
            self._changed.notify_all()

    def _disconnect_client(self, client: Client) -> None:
        """handler.go: disconnectClient, client.go: Disconnect."""
        with self._changed:
            self._clients.drop(client.resource, client.path)
        client.close()
        self._plugin_disconnected(client)

    def _plugin_connected(self, client: Client) -> None:
        with self._changed:
            if self.rule == "list":
                store = self._store.setdefault(client.resource, {})
                if client.path in store:
                    raise PluginError(f"device plugin already connected: {client.path}")
                store[client.path] = client
            self._endpoints[client.resource] = client

    def _plugin_disconnected(self, client: Client) -> None:
        with self._changed:
            if self.rule == "single":
                if client.resource in self._endpoints:
                    self._mark_unhealthy(client.resource)
                    self._endpoints[client.resource].is_stopped = True
                return
            store = self._store.get(client.resource, {})
            if client.path not in store:
                return
            store[client.path].is_stopped = True
            if len(store) == 1:
                del self._store[client.resource]
                self._mark_unhealthy(client.resource)
            else:
                del store[client.path]
                self._endpoints[client.resource] = next(iter(store.values()))

    def _mark_unhealthy(self, resource: str) -> None:
        self.devices[resource] = dict.fromkeys(self.devices.get(resource, {}), False)
        self._changed.notify_all()
