# SPDX-License-Identifier: Apache-2.0
"""A real kubelet without an API server, for tests inside `namespace.sh`.

Its pods come from files (`pods.py`), its devices are read from its pod resources socket and from its device manager's
checkpoint. One RealKubelet at a time: the kubelet's folders are constants of its own.
"""

import json
import shutil
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from tests.rig import podresources
from tests.rig.pods import MANIFESTS, POD_LOGS, PORT, PodResult, StaticPods, finished, started
from tests.rig.runtime import HOME, SOCKET, Containerd, require_namespace
from tests.rig.wait import RigError, wait_until

__all__ = ["KUBELET_DIR", "PodResult", "RealKubelet", "finished", "started"]

KUBELET_DIR = Path("/var/lib/kubelet")


class RealKubelet(StaticPods):
    """A kubelet and its containerd, as a context manager that starts both.

    `version` is one that build.py builds (`1.34.4`), `bin_dir` the folder that build.py printed, `work_dir` gets the
    logs (kubelet.log, containerd.log). On leaving, pods and processes are ended, and mounts, cgroups and the contents
    of the kubelet's folders removed.
    """

    device_plugin_dir = KUBELET_DIR / "device-plugins"
    plugin_registry_dir = KUBELET_DIR / "plugins_registry"

    def __init__(self, version: str, bin_dir: Path, work_dir: Path) -> None:
        super().__init__()
        self.version = version
        major, minor = map(int, version.split(".")[:2])
        self.rule: Literal["single", "list"] = "list" if (major, minor) >= (1, 37) else "single"
        """single: one client for each resource name, a new one replaces it; list: one for each socket path."""
        self._program = bin_dir / f"kubelet-{version}"
        self._log = work_dir / "kubelet.log"
        self._containerd = Containerd(bin_dir, work_dir / "containerd.log")
        self._process: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()
        self._seen: dict[str, set[str]] = {}  # slot ids by resource, see `slots`

    def __enter__(self) -> Self:
        require_namespace()  # before anything that `_wipe` would follow
        with ExitStack() as stack:
            stack.callback(self._wipe)
            stack.enter_context(self._containerd)
            stack.callback(self.stop)
            for folder in (MANIFESTS, POD_LOGS):
                folder.mkdir()
            self._write_config()
            self.start()
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    # --- the kubelet's process

    def start(self) -> None:
        """Start the kubelet and wait until it takes registrations and lists the pods whose manifests are there."""
        if self._process is not None:
            raise RigError("the kubelet runs already")
        self._seen.clear()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._program, "--config", HOME / "kubelet.json", "-v=2"], stdout=log, stderr=log
            )
        try:
            wait_until(self._is_ready, 20, "the kubelet to be ready")
        except RigError as err:
            self.stop()
            raise RigError(f"{err}\n{self.log_tail()}") from err

    def stop(self) -> None:
        """End the kubelet as its service manager would (SIGTERM); pods go on running. Nothing happens if it is stopped."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def restart(self) -> None:
        """Stop and start: the kubelet then deletes every socket in its device-plugins folder and keeps the checkpoint."""
        self.stop()
        self.start()

    def log_tail(self, lines: int = 40) -> str:
        """The last lines of the kubelet's log, over all its starts."""
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    # --- devices

    def slots(self, resource: str) -> dict[str, bool]:
        """Slot id -> healthy, as the device manager holds it now; empty for a resource it doesn't know.

        The kubelet names its healthy slots only. So an unhealthy one is known here if it was healthy at an earlier
        call since the kubelet's start; one that was never healthy is left out. The checkpoint would not do: it isn't
        written when a plugin's stream ends.
        """
        healthy = podresources.allocatable(KUBELET_DIR / "pod-resources" / "kubelet.sock", resource)
        seen = self._seen.setdefault(resource, set())
        seen |= healthy
        return {slot: slot in healthy for slot in sorted(seen)}

    def wait_slots(self, resource: str, count: int, deadline_s: float = 10) -> dict[str, bool]:
        """Wait until exactly `count` slots of `resource` are healthy; returns `slots`."""
        return wait_until(
            lambda: self.slots(resource),
            deadline_s,
            f"{count} healthy slots of {resource}",
            done=lambda slots: sum(slots.values()) == count,
        )

    def checkpoint(self) -> dict[str, Any]:
        """The device manager's checkpoint: RegisteredDevices and PodDeviceEntries, as the kubelet wrote them."""
        data: dict[str, Any] = json.loads((self.device_plugin_dir / "kubelet_internal_checkpoint").read_text())["Data"]
        return data

    def allocated(self, resource: str) -> dict[str, list[str]]:
        """Pod name (uid, for a pod not made here) -> its slot ids, from the checkpoint.

        A pod that is over or deleted stays until the kubelet next admits a pod that asks for devices.
        """
        names = {uid: name for name, uid in self._uids.items()}
        found: dict[str, list[str]] = {}
        for entry in self.checkpoint()["PodDeviceEntries"] or []:
            if entry["ResourceName"] == resource:
                ids = [slot for slots in entry["DeviceIDs"].values() for slot in slots]  # by NUMA node
                found.setdefault(names.get(entry["PodUID"], entry["PodUID"]), []).extend(sorted(ids))
        return found

    # --- inside

    def _write_config(self) -> None:
        config = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "containerRuntimeEndpoint": f"unix://{SOCKET}",
            "enforceNodeAllocatable": [],
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1Mi", "imagefs.available": "1Mi"},
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "oomScoreAdj": 0,
            "podLogsDir": str(POD_LOGS),
            "readOnlyPort": PORT,
            "registerNode": False,
            "staticPodPath": str(MANIFESTS),
            "syncFrequency": "1s",
            "volumePluginDir": str(HOME / "volume-plugins"),
        }
        (HOME / "kubelet.json").write_text(json.dumps(config))

    def _is_ready(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            raise RigError("the kubelet ended")
        # The file alone proves nothing: before it deletes its old socket, a restarted kubelet has one that is dead.
        with socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(self.device_plugin_dir / "kubelet.sock"))
        self.slots("rig/none")
        # It reads the manifests a moment after it answers.
        return {manifest.stem for manifest in MANIFESTS.glob("*.json")} <= self.pods().keys()

    def _wipe(self) -> None:
        """Empty the kubelet's folder, so that the next RealKubelet starts on a new node."""
        for path in KUBELET_DIR.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()
