# SPDX-License-Identifier: Apache-2.0
"""The kubelet's plugin watcher: finds sockets in plugins_registry, asks who they are, and registers them.

As read in the kubelet's pkg/kubelet/pluginmanager of 1.34.4 and 1.37.2: pluginwatcher/plugin_watcher.go,
reconciler/reconciler.go, operationexecutor/operation_generator.go. Differs in time only: it looks every 0.1 s instead
of waiting for inotify and a loop of 1 s.
"""

import stat
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import grpc

from rdma_plugin.pb import pluginregistration_v1_pb2 as pb
from rdma_plugin.pb import pluginregistration_v1_pb2_grpc as rpc
from tests.fakes.device_manager import DeviceManager
from tests.fakes.plugin_client import PluginError
from tests.fakes.registry import is_extended_resource_name

PERIOD_S = 0.1
CALL_S = 1.0
FIRST_RETRY_S = 0.5
LONGEST_RETRY_S = 120.0

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Plugin:
    """A socket that registered, and as what."""

    identity: Identity
    name: str
    endpoint: str


class PluginWatcher:
    """A thread that makes the registered plugins those whose sockets are there."""

    def __init__(self, directory: Path, manager: DeviceManager) -> None:
        self._directory = directory
        self._manager = manager
        self._ending = threading.Event()
        self._registered: dict[Path, Plugin] = {}
        self._retries: dict[Path, tuple[Identity, float, float]] = {}  # identity, not before, pause
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def end(self) -> None:
        """Stop looking; registered plugins stay as they are."""
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.wait(PERIOD_S):
            self._reconcile()

    def _reconcile(self) -> None:
        """reconciler.go: removals first, then new sockets."""
        there = self._sockets()
        for path, plugin in list(self._registered.items()):
            if there.get(path) != plugin.identity:
                del self._registered[path]
                self._manager.deregister(plugin.name, plugin.endpoint)
        for path, identity in there.items():
            if path not in self._registered and not self._ending.is_set():
                self._try(path, identity)

    def _sockets(self) -> dict[Path, Identity]:
        """plugin_watcher.go: sockets whose name doesn't start with a dot."""
        found: dict[Path, Identity] = {}
        try:
            paths = sorted(self._directory.iterdir())
        except FileNotFoundError:
            return found
        for path in paths:
            try:
                status = path.lstat()
            except FileNotFoundError:
                continue
            if stat.S_ISSOCK(status.st_mode) and not path.name.startswith("."):
                found[path] = (status.st_ino, status.st_mtime_ns)
        return found

    def _try(self, path: Path, identity: Identity) -> None:
        known, not_before, pause_s = self._retries.get(path, (identity, 0.0, FIRST_RETRY_S))
        if known == identity and time.monotonic() < not_before:
            return
        try:
            self._register(path, identity)
        except (PluginError, grpc.RpcError):
            self._retries[path] = (identity, time.monotonic() + pause_s, min(2 * pause_s, LONGEST_RETRY_S))

    def _register(self, path: Path, identity: Identity) -> None:
        """operation_generator.go: GenerateRegisterPluginFunc."""
        # without an authority of its own, Go sends the path, percent-encoded
        options = [("grpc.default_authority", quote(str(path), safe="")), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(f"unix:{path}", options=options) as channel:
            stub = rpc.RegistrationStub(channel)
            info = stub.GetInfo(pb.InfoRequest(), timeout=CALL_S)
            plugin = Plugin(identity, info.name, info.endpoint or str(path))
            try:
                self._validate(info)
                self._registered[path] = plugin
                self._manager.connect_client(plugin.name, plugin.endpoint)
            except PluginError as err:
                self._registered.pop(path, None)
                text = f"RegisterPlugin error -- plugin registration failed with err: {err}"
                stub.NotifyRegistrationStatus(
                    pb.RegistrationStatus(plugin_registered=False, error=text), timeout=CALL_S
                )
                raise
            stub.NotifyRegistrationStatus(pb.RegistrationStatus(plugin_registered=True), timeout=CALL_S)

    @staticmethod
    def _validate(info: pb.PluginInfo) -> None:
        if info.type != "DevicePlugin":
            raise PluginError(f"no handler registered for plugin type: {info.type}")
        if "v1beta1" not in info.supported_versions:
            raise PluginError(
                f"manager version, v1beta1, is not among plugin supported versions {info.supported_versions}"
            )
        if not is_extended_resource_name(info.name):
            raise PluginError(f'invalid name of device plugin socket: the ResourceName "{info.name}" is invalid')
