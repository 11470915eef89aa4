# SPDX-License-Identifier: Apache-2.0
"""Pods from files on a kubelet without an API server: written, watched and taken away.

What became of a pod is read from the kubelet's read-only port and from its log folder, never guessed from what was
asked for.
"""

import http.client
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tests.rig.runtime import CGROUP, HOME, IMAGE, processes
from tests.rig.wait import wait_until

MANIFESTS = HOME / "manifests"
POD_LOGS = HOME / "pod-logs"
PORT = 10255
"""The kubelet's read-only port, on the namespace's own loopback."""


@dataclass(frozen=True, slots=True)
class PodResult:
    """A pod as the kubelet reports it."""

    name: str
    uid: str
    phase: str
    """Pending, Running, Succeeded or Failed."""
    reason: str
    """The kubelet's word: of the pod (a refusal: UnexpectedAdmissionError...), else of its container (RunContainerError...)."""
    message: str
    """The kubelet's sentence that belongs to `reason`; empty where it gives none."""
    exit_code: int | None
    """Of the container; None while it hasn't ended, or if it never ran."""
    logs: str
    """What the command has written so far, both streams."""


def started(pod: PodResult) -> bool:
    """The pod runs or is over, be it by refusal."""
    return pod.phase != "Pending"


def finished(pod: PodResult) -> bool:
    """The pod is over; its logs are whole."""
    return pod.phase in {"Succeeded", "Failed"}


class StaticPods:
    """The pods of the kubelet that reads MANIFESTS and answers on PORT."""

    def __init__(self) -> None:
        self._uids: dict[str, str] = {}  # of the pods made here, by name; a deleted pod's stays

    def run_pod(
        self,
        name: str,
        resources: Mapping[str, int],
        command: str,
        host_network: bool = True,
        *,
        until: Callable[[PodResult], object] = started,
        deadline_s: float = 15,
    ) -> PodResult:
        """Run the shell `command` in a new pod whose limits are `resources`; it is not restarted when it ends.

        Returns the pod when `until` accepts it. Pass `until=finished` for a short command's whole output.
        Call `wait_slots` first: without a scheduler nobody refuses a pod that asks for a resource that the kubelet has
        never heard of; it runs, without devices.
        """
        # Uid and name are of our own and new each time. The kubelet would derive the uid from the manifest and take a
        # second pod like an earlier one for that one, which is over; and it starts a static pod of an earlier one's
        # name only after 10 to 15 s.
        uid = self._uids[name] = str(uuid.uuid4())
        container = {
            "name": "main",
            "image": IMAGE,
            "imagePullPolicy": "Never",
            "command": ["sh", "-c", command],
            "resources": {"limits": {resource: str(count) for resource, count in resources.items()}},
        }
        spec = {
            "hostNetwork": host_network,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,  # a shell as PID 1 ignores SIGTERM
            "containers": [container],
        }
        metadata = {"name": f"{name}-{uid[:8]}", "namespace": "default", "uid": uid}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        draft = HOME / f"{name}.draft"  # the kubelet must never read half a manifest
        draft.write_text(json.dumps(pod))
        draft.rename(MANIFESTS / f"{name}.json")
        return self.wait_pod(name, until, deadline_s)

    def wait_pod(self, name: str, until: Callable[[PodResult], object] = started, deadline_s: float = 15) -> PodResult:
        """Wait until `until` accepts the pod; a pod that the kubelet doesn't list yet is waited for."""
        pod = wait_until(
            lambda: self.pods().get(name),
            deadline_s,
            f"pod {name} to be as wanted",
            done=lambda pod: pod is not None and until(pod),
        )
        assert pod is not None
        return pod

    def pods(self) -> dict[str, PodResult]:
        """The pods that the kubelet has now, by the name that they were given in `run_pod`."""
        statuses = {item["metadata"]["uid"]: item["status"] for item in self._ask("/pods")["items"] or []}
        return {name: self._result(name, uid, statuses[uid]) for name, uid in self._uids.items() if uid in statuses}

    def pod_logs(self, name: str) -> str:
        """What the command of a pod made here has written so far, both streams; empty if it never ran."""
        text = ""
        for file in sorted(POD_LOGS.glob(f"*_{self._uids[name]}/main/*.log")):
            for line in file.read_text(errors="replace").split("\n")[:-1]:  # the last one isn't whole yet
                # CRI's format: time, stream, F(ull) or P(artial) line, text
                _, _, kind, part = line.split(" ", 3)
                text += part + ("\n" if kind == "F" else "")
        return text

    def delete_pod(self, name: str, deadline_s: float = 15) -> None:
        """Take the pod's manifest away and wait until the kubelet has forgotten it and its processes are gone."""
        (MANIFESTS / f"{name}.json").unlink()
        wait_until(lambda: name not in self.pods(), deadline_s, f"the kubelet to forget pod {name}")
        wait_until(lambda: self._pod_processes(name), deadline_s, f"pod {name} to end", done=lambda pids: not pids)

    def _ask(self, path: str) -> Any:
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=5)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            text = answer.read()
        except http.client.HTTPException as err:
            raise ConnectionError(f"read-only port: {err!r}") from err
        finally:
            connection.close()
        if answer.status != http.HTTPStatus.OK:
            raise ConnectionError(f"read-only port: {answer.status} {text!r}")
        return json.loads(text)

    def _result(self, name: str, uid: str, status: Mapping[str, Any]) -> PodResult:
        states: list[dict[str, Any]] = [container["state"] for container in status.get("containerStatuses", [])]
        ended: Mapping[str, Any] = next((state["terminated"] for state in states if "terminated" in state), {})
        waits: Mapping[str, Any] = next((state["waiting"] for state in states if "waiting" in state), {})
        why = next((source for source in (status, ended, waits) if source.get("reason")), {})
        return PodResult(
            name=name,
            uid=uid,
            phase=status.get("phase", "Pending"),
            reason=why.get("reason", ""),
            message=why.get("message", ""),
            exit_code=ended.get("exitCode"),
            logs=self.pod_logs(name),
        )

    def _pod_processes(self, name: str) -> list[int]:
        trees = CGROUP.glob(f"kubepods/**/pod{self._uids[name]}")
        return [pid for tree in trees for pid in processes(tree)]
