# SPDX-License-Identifier: Apache-2.0
"""Prove the rig on every kubelet in it, with a throwaway plugin: `tests/rig/run.sh python -m tests.rig.selfcheck`.

Exits 0 and says how long each step took, or ends with the step that failed. It stands on grpcio alone, so a fault it
finds is the rig's and not the product's.
"""

import os
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from tests.rig.kubelet import KUBELET_DIR, RealKubelet, finished
from tests.rig.runtime import CGROUP, HOME
from tests.rig.wait import wait_until

RESOURCE = "rdma/selfcheck"
NODE = Path("/dev/infiniband/uverbs0")


def field(number: int, value: str | bytes) -> bytes:
    """One text or message field of a protobuf message (numbers: k8s.io/kubelet deviceplugin/v1beta1/api.proto)."""
    data = value.encode() if isinstance(value, str) else value
    length = bytes([len(data)]) if len(data) < 0x80 else bytes([len(data) & 0x7F | 0x80, len(data) >> 7])
    return bytes([number << 3 | 2]) + length + data


class Plugin:
    """A device plugin with `count` healthy slots that answers every Allocate with NODE; registered while entered."""

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self._slots = b"".join(field(1, field(1, str(slot)) + field(2, "Healthy")) for slot in range(count))
        self._server = grpc.server(ThreadPoolExecutor(8))
        answer = field(1, field(3, field(1, str(NODE)) + field(2, str(NODE)) + field(3, "rw")))
        methods: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "GetDevicePluginOptions": grpc.unary_unary_rpc_method_handler(lambda _request, _context: b""),
            "ListAndWatch": grpc.unary_stream_rpc_method_handler(self._list),
            "Allocate": grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer),
        }
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods)])
        self._server.add_insecure_port(f"unix://{folder}/selfcheck.sock")

    def _list(self, _request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        over = threading.Event()
        if context.add_callback(over.set):
            yield self._slots
            over.wait()

    def __enter__(self) -> Self:
        self._server.start()
        request = field(1, "v1beta1") + field(2, "selfcheck.sock") + field(3, RESOURCE)
        options = [("grpc.default_authority", "localhost")]
        with grpc.insecure_channel(f"unix://{self._folder}/kubelet.sock", options=options) as channel:
            register = channel.unary_unary("/v1beta1.Registration/Register", bytes, bytes)
            register(request, timeout=10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.stop(0).wait()


def say(text: str) -> None:
    """Print a line now."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


@contextmanager
def step(text: str) -> Iterator[None]:
    """Print a step and its time."""
    began = time.monotonic()
    yield
    say(f"  {time.monotonic() - began:5.2f} s  {text}")


def check(claim: bool, seen: object) -> None:
    """End the check with what was seen."""
    if not claim:
        raise SystemExit(f"FAILED: {seen}")


def check_pods(kubelet: RealKubelet) -> None:
    """Admission, the injected node, sharing, refusal."""
    with step("pod runs, sees the node, may not open what it wasn't given"):
        command = f"ls -l {NODE.parent}; cat {NODE}; mknod /tmp/u c 231 200; cat /tmp/u; echo end; sleep 600"
        one = kubelet.run_pod("one", {RESOURCE: 1}, f"mkdir -p /tmp; {command}")
        logs = wait_until(lambda: kubelet.pod_logs("one"), 5, "the pod's output", done=lambda text: "end\n" in text)
        check(one.phase == "Running" and "231, 192" in logs.replace("231,   ", "231, "), (one, logs))
        check("No such device or address" in logs and "Operation not permitted" in logs, logs)
    with step("second pod, not on the host's network, shares the device and ends"):
        two = kubelet.run_pod("two", {RESOURCE: 1}, f"test -c {NODE} && echo mine", host_network=False, until=finished)
        check((two.phase, two.exit_code, two.logs) == ("Succeeded", 0, "mine\n"), two)
    with step("a pod that asks for 201 is refused"):
        more = kubelet.run_pod("more", {RESOURCE: 201}, "true")
        check((more.phase, more.reason) == ("Failed", "UnexpectedAdmissionError") and "201" in more.message, more)
        say(f"           {more.reason}: {more.message}")
    allocated = kubelet.allocated(RESOURCE)
    check(len(allocated["one"]) == 1 and set(allocated["one"]) < {str(slot) for slot in range(200)}, allocated)


def check_version(version: str, programs: Path, work: Path) -> None:
    """Everything, with one kubelet."""
    began = time.monotonic()
    with RealKubelet(version, programs, work) as kubelet:
        say(f"kubelet {version}, {kubelet.rule}")
        say(f"  {time.monotonic() - began:5.2f} s  containerd and kubelet are ready")
        with Plugin(kubelet.device_plugin_dir, 200):
            with step("200 slots"):
                kubelet.wait_slots(RESOURCE, 200)
            check_pods(kubelet)
            kept = kubelet.allocated(RESOURCE)["one"]
            with step("kubelet restarts: sockets gone, pod and checkpoint stay"):
                kubelet.restart()
                check(not (kubelet.device_plugin_dir / "selfcheck.sock").exists(), "the plugin's socket is still there")
                check(kubelet.allocated(RESOURCE)["one"] == kept, kubelet.checkpoint())
                pod = kubelet.wait_pod("one")
                check(pod.phase == "Running", pod)
        with Plugin(kubelet.device_plugin_dir, 100), step("registers anew, with fewer slots"):
            kubelet.wait_slots(RESOURCE, 100)
        with step("plugin ends: no slot is healthy"):
            kubelet.wait_slots(RESOURCE, 0)
        with step("pod deleted"):
            kubelet.delete_pod("one")
        began = time.monotonic()
    left = [*KUBELET_DIR.iterdir(), *CGROUP.glob("kubepods"), *HOME.parent.glob(HOME.name)]
    check(not left, left)
    say(f"  {time.monotonic() - began:5.2f} s  all stopped")


def main() -> None:
    """Check every kubelet that build.py made."""
    programs = Path(os.environ["RDMA_PLUGIN_RIG"])
    NODE.parent.mkdir()
    os.mknod(NODE, 0o666 | stat.S_IFCHR, os.makedev(231, 192))
    for program in sorted(programs.glob("kubelet-*")):
        with tempfile.TemporaryDirectory(prefix="rig-") as work:
            check_version(program.name.removeprefix("kubelet-"), programs, Path(work))


if __name__ == "__main__":
    main()
