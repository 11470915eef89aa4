# SPDX-License-Identifier: Apache-2.0
"""`FakeKubelet`: a kubelet as a device plugin sees it, on real sockets, in threads of this process.

Serves kubelet.sock, watches plugins_registry, follows lists, and admits pods as the device manager does. No container
ever runs: a pod's log is what its container would have got. The interface is that of tests/rig/kubelet.py's
RealKubelet, so that the same cases run on both.
"""

import json
import stat
import threading
import uuid
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Never, Self

import grpc

from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from rdma_plugin.pb import deviceplugin_v1beta1_pb2_grpc as rpc
from tests.fakes.device_manager import DeviceManager, Rule
from tests.fakes.plugin_client import Client, PluginError, describe
from tests.fakes.plugin_watcher import PluginWatcher
from tests.fakes.registry import Registration, Registry
from tests.rig.kubelet import PodResult

CHECKPOINT = "kubelet_internal_checkpoint"
NO_NUMA = "-1"
"""The checkpoint's key for devices without topology (devicemanager/checkpoint/checkpoint.go)."""


class FakeKubelet:
    """A kubelet below `root`, as a context manager that starts and stops it. `root` must be short: sockets lie in it."""

    def __init__(self, root: Path, rule: Rule = "single") -> None:
        self.rule = rule
        self.device_plugin_dir = root / "device-plugins"
        self.plugin_registry_dir = root / "plugins_registry"
        self.registrations: list[Registration] = []
        """Every Register call so far, over all starts."""
        self.watches_plugins = True
        """False: the next start has no plugin watcher."""
        self._changed = threading.Condition()
        self._manager = DeviceManager(rule, self._changed)
        self._watcher: PluginWatcher | None = None
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._pods: dict[str, dict[str, list[str]]] = {}  # uid -> resource -> slot ids
        self._names: dict[str, str] = {}  # uid -> pod name

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    # --- the kubelet's process

    def start(self) -> None:
        """Start: make the directories, delete every socket in device-plugins, read the checkpoint, listen."""
        assert self._server is None, "the kubelet runs already"
        for directory in (self.device_plugin_dir, self.plugin_registry_dir):
            directory.mkdir(parents=True, exist_ok=True)
        for path in self.device_plugin_dir.iterdir():  # manager.go: CleanupPluginDirectory
            with suppress(FileNotFoundError):  # a plugin removed its own meanwhile
                if stat.S_ISSOCK(path.lstat().st_mode):
                    path.unlink()
        self._read_checkpoint()
        old, self._manager = self._manager, DeviceManager(self.rule, self._changed)
        self._manager.refuses, self._manager.opens_streams = old.refuses, old.opens_streams
        self._pool = ThreadPoolExecutor(8)
        self._server = grpc.server(self._pool)
        registry = Registry(self.device_plugin_dir, self._manager, self.registrations)
        rpc.add_RegistrationServicer_to_server(registry, self._server)
        # bound under another name, because gRPC would remove it at stop and a kubelet that ends leaves it
        self._server.add_insecure_port(f"unix:{self.device_plugin_dir}/.binding")
        self._server.start()
        (self.device_plugin_dir / ".binding").rename(self.device_plugin_dir / "kubelet.sock")
        if self.watches_plugins:
            self._watcher = PluginWatcher(self.plugin_registry_dir, self._manager)
            self._watcher.start()

    def stop(self) -> None:
        """End the process: connections close, kubelet.sock stays and is dead. Nothing happens if it is stopped."""
        if self._server is None or self._pool is None:
            return
        if self._watcher is not None:
            self._watcher.end()
        self._server.stop(None).wait()
        self._manager.end()
        self._pool.shutdown()
        self._server = self._watcher = self._pool = None
        with self._changed:
            self._manager.devices = {}

    def restart(self) -> None:
        """Stop and start."""
        self.stop()
        self.start()

    # --- faults

    def refuse(self, times: int) -> None:
        """Fail the next registrations, by either way."""
        with self._changed:
            self._manager.refuses = times

    def open_streams(self, *, are_opened: bool) -> None:
        """With False: accept registrations and never call ListAndWatch."""
        self._manager.opens_streams = are_opened

    def drop_stream(self, resource: str) -> None:
        """Close the connection to the plugin of a resource."""
        self._manager.drop_stream(resource)

    # --- devices

    def slots(self, resource: str) -> dict[str, bool]:
        """Slot id -> healthy, as the device manager holds it now; empty for a resource it doesn't know."""
        with self._changed:
            return dict(self._manager.devices.get(resource, {}))

    def wait_slots(self, resource: str, count: int, deadline_s: float = 10) -> dict[str, bool]:
        """Wait until exactly `count` slots of `resource` are healthy; returns `slots`."""
        with self._changed:
            reached = self._changed.wait_for(lambda: sum(self.slots(resource).values()) == count, deadline_s)
            assert reached, f"not within {deadline_s:g} s: {count} slots of {resource}; has {self.slots(resource)}"
            return self.slots(resource)

    def streams(self) -> list[str]:
        """Paths whose ListAndWatch stream is open, one entry for each stream."""
        with self._changed:
            return sorted(self._manager.streams)

    def checkpoint(self) -> dict[str, Any]:
        """The device manager's checkpoint: RegisteredDevices and PodDeviceEntries."""
        data: dict[str, Any] = json.loads((self.device_plugin_dir / CHECKPOINT).read_text())["Data"]
        return data

    def allocated(self, resource: str) -> dict[str, list[str]]:
        """Pod name -> its slot ids, for pods that run."""
        return {
            self._names[uid]: sorted(devices[resource]) for uid, devices in self._pods.items() if resource in devices
        }

    # --- pods

    def run_pod(
        self, name: str, resources: Mapping[str, int], command: str = "", host_network: bool = True
    ) -> PodResult:
        """Admit a pod with one container; its log holds `dev PATH PERMISSIONS` and `env NAME=VALUE` lines."""
        del command, host_network
        uid = str(uuid.uuid4())
        self._names[uid] = name
        self._pods[uid] = {}
        lines: list[str] = []
        try:
            for resource, count in resources.items():
                lines += self._allocate(uid, resource, count)
        except PluginError as err:  # lifecycle/predicate.go, cm/admission/errors.go
            del self._pods[uid]
            text = f"Pod was rejected: Allocate failed due to {err}, which is unexpected"
            return PodResult(name, uid, "Failed", "UnexpectedAdmissionError", text, None, "")
        self._write_checkpoint()
        return PodResult(name, uid, "Running", "", "", None, "".join(f"{line}\n" for line in lines))

    def delete_pod(self, name: str, deadline_s: float = 15) -> None:
        """End a pod; its slots are free again."""
        del deadline_s
        self._pods = {uid: devices for uid, devices in self._pods.items() if self._names[uid] != name}
        self._write_checkpoint()

    def _allocate(self, uid: str, resource: str, count: int) -> list[str]:
        """manager.go: allocateContainerResources; a resource that no plugin ever registered isn't its business."""
        client = self._manager.endpoint(resource)
        slots = self.slots(resource)
        if client is None or not count:
            return []
        if not any(slots.values()):
            raise PluginError(f"no healthy devices present; cannot allocate unhealthy devices {resource}")
        taken = {slot for devices in self._pods.values() for slot in devices.get(resource, [])}
        free = [slot for slot, is_healthy in slots.items() if is_healthy and slot not in taken]
        if len(free) < count:
            raise PluginError(
                f"requested number of devices unavailable for {resource}. Requested: {count}, Available: {len(free)}"
            )
        try:
            if client.is_stopped:
                raise PluginError(f"endpoint {client.path} has been stopped")
            picked = _pick(client, free, count)
            request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=picked)])
            answer = client.stub.Allocate(request)
            if client.options.pre_start_required:
                client.stub.PreStartContainer(pb.PreStartContainerRequest(devices_ids=picked), timeout=30)
        except grpc.RpcError as err:
            _fail(err)
        except ValueError as err:  # the channel was closed since it was looked up
            raise PluginError(f"endpoint {client.path} has been stopped") from err
        self._pods[uid][resource] = picked
        (container,) = answer.container_responses
        lines = [f"dev {device.container_path} {device.permissions}" for device in container.devices]
        return lines + [f"env {key}={value}" for key, value in sorted(container.envs.items())]

    def _write_checkpoint(self) -> None:
        entries = [
            {"PodUID": uid, "ContainerName": "main", "ResourceName": resource, "DeviceIDs": {NO_NUMA: ids}}
            for uid, devices in self._pods.items()
            for resource, ids in devices.items()
        ]
        with self._changed:
            registered = {
                resource: [slot for slot, is_healthy in slots.items() if is_healthy]
                for resource, slots in self._manager.devices.items()
            }
        data = {"PodDeviceEntries": entries, "RegisteredDevices": registered}
        (self.device_plugin_dir / CHECKPOINT).write_text(json.dumps({"Data": data, "Checksum": 0}))

    def _read_checkpoint(self) -> None:
        """Pods run on over a restart and keep their slots."""
        self._pods = {}
        with suppress(FileNotFoundError):
            for entry in self.checkpoint()["PodDeviceEntries"]:
                self._pods.setdefault(entry["PodUID"], {})[entry["ResourceName"]] = entry["DeviceIDs"][NO_NUMA]


def _pick(client: Client, free: list[str], count: int) -> list[str]:
    """manager.go: devicesToAllocate; a real one picks in random order where the plugin has no preference."""
    preferred: list[str] = []
    if client.options.get_preferred_allocation_available:
        wish = pb.ContainerPreferredAllocationRequest(available_deviceIDs=free, allocation_size=count)
        answer = client.stub.GetPreferredAllocation(pb.PreferredAllocationRequest(container_requests=[wish]))
        preferred = [slot for slot in answer.container_responses[0].deviceIDs if slot in free]
    return list(dict.fromkeys(preferred + free))[:count]


def _fail(err: grpc.RpcError) -> Never:
    raise PluginError(describe(err)) from err
