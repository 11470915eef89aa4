# SPDX-License-Identifier: Apache-2.0
"""A real containerd with runc and one local image, inside `namespace.sh`; on leaving, all it started is gone.

Everything it writes lies below HOME, on the namespace's own tmpfs: an overlay snapshot can't lie on an overlay file
system, which the root of a CI container often is.
"""

import os
import shutil
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.rig.wait import RigError, wait_until

HOME = Path("/run/rdma-plugin-rig")
SOCKET = HOME / "containerd.sock"
IMAGE = "localhost/rig:1"
"""Also the sandbox image: without a command it sleeps for ever."""
PODS_ADDRESS = "10.88.0.2"
CGROUP = next((path for path in (Path("/sys/fs/cgroup/memory"),) if path.is_dir()), Path("/sys/fs/cgroup"))
"""A hierarchy (v1) or the hierarchy (v2) in which every pod has its tree."""

# The image verifier must stay enabled although it has nothing to do: CRI doesn't load without it.
CONFIG = """
version = 3
root = '{home}/root'
state = '{home}/state'
disabled_plugins = ['io.containerd.nri.v1.nri', 'io.containerd.internal.v1.tracing', 'io.containerd.tracing.processor.v1.otlp']
[grpc]
address = '{socket}'
[plugins.'io.containerd.internal.v1.opt']
path = '{home}/opt'
[plugins.'io.containerd.image-verifier.v1.bindir']
bin_dir = '{home}/verifiers'
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{image}'
[plugins.'io.containerd.cri.v1.runtime']
disable_apparmor = true
# Without CAP_SYS_RESOURCE runc can't lower the score and says only that it got no "child's PID from pipe".
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{home}/cni']
conf_dir = '{home}/cni'
use_internal_loopback = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
options = {{BinaryName = '{programs}/runc', SystemdCgroup = false}}
"""

# A pod network that answers as CRI expects and connects nothing: tests need no traffic between pods.
CNI_PLUGIN = f"""#!/bin/sh
echo '{{"cniVersion": "1.0.0", "ips": [{{"address": "{PODS_ADDRESS}/24"}}], "supportedVersions": ["1.0.0"]}}'
"""
CNI_CONFIG = '{"cniVersion": "1.0.0", "name": "rig", "plugins": [{"type": "nothing"}]}'


def require_namespace() -> None:
    """Raises: RigError outside namespace.sh, where the rig would write to the machine's own folders and empty them."""
    mounts = [line.split()[:2] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for folder in ("/run", "/var/lib/kubelet"):
        if ["rdma-plugin-rig", folder] not in mounts:
            raise RigError(f"run this by tests/rig/namespace.sh: {folder} is the machine's own here")


def processes(cgroup: Path) -> list[int]:
    """The live processes in a cgroup and below it, those of this pid namespace only; none if there is no such group."""
    found: list[int] = []
    for file in cgroup.glob("**/cgroup.procs"):
        with suppress(OSError):  # the group has just gone
            found += [pid for pid in map(int, file.read_text().split()) if pid != 0]  # 0: another namespace's
    return found


class Containerd:
    """containerd in the namespace, as a context manager. `bin_dir` is what build.py printed; the log goes to `log`."""

    def __init__(self, bin_dir: Path, log: Path) -> None:
        self._bin_dir = bin_dir
        self._log = log

    def __enter__(self) -> Self:
        require_namespace()
        (HOME / "cni").mkdir(parents=True)
        (HOME / "cni" / "nothing").write_text(CNI_PLUGIN)
        (HOME / "cni" / "nothing").chmod(0o755)
        (HOME / "cni" / "rig.conflist").write_text(CNI_CONFIG)
        config = HOME / "containerd.toml"
        config.write_text(CONFIG.format(home=HOME, socket=SOCKET, image=IMAGE, programs=self._bin_dir))
        path = f"{self._bin_dir}:{os.environ['PATH']}"  # the shim is looked up there
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [self._bin_dir / "containerd", "-c", config], stdout=log, stderr=log, env={**os.environ, "PATH": path}
            )
        try:
            wait_until(SOCKET.exists, 20, f"containerd's socket (see {self._log})")
            self._import_image()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def _import_image(self) -> None:
        ctr = f"{self._bin_dir}/ctr"
        importing = [ctr, "-a", str(SOCKET), "-n", "k8s.io", "images", "import", f"{self._bin_dir}/image.tar"]
        done = subprocess.run(importing, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RigError(f"ctr could not import the image: {done.stderr.strip()}")

    def _end(self) -> None:
        """Stop containerd, then whatever a stopped containerd leaves: shims, containers, mounts, cgroups."""
        self._process.terminate()
        self._process.wait()
        wait_until(self._kill_left, 10, "the pods' processes to end", done=lambda left: not left)
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
        for mount in reversed([mount for mount in mounts if mount.startswith((f"{HOME}/", "/var/lib/kubelet/"))]):
            subprocess.run(["umount", mount], check=True)
        shutil.rmtree(HOME)
        for tree in [Path("/sys/fs/cgroup/kubepods"), *Path("/sys/fs/cgroup").glob("*/kubepods")]:
            for folder, _, _ in os.walk(tree, topdown=False):
                Path(folder).rmdir()

    def _kill_left(self) -> list[int]:
        """Kill the shims and what runs in pods' cgroups; returns whom."""
        shims = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # it has just ended
                if (process / "exe").resolve() == (self._bin_dir / "containerd-shim-runc-v2").resolve():
                    shims.append(int(process.name))
        left = shims + processes(CGROUP / "kubepods")
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left
