# SPDX-License-Identifier: Apache-2.0
"""The real `rdma-plugin run`, as a process of its own, with its log lines to wait for."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

EXAMPLE_CONFIG: dict[str, Any] = {
    "periodicUpdateInterval": 300,
    "configList": [
        {
            "resourceName": "hca_shared_devices_a",
            "resourcePrefix": "rdma",
            "rdmaHcaMax": 200,
            "selectors": {
                "vendors": [],
                "devices": [],
                "drivers": [],
                "ifNames": ["ibs108"],
                "pfNames": [],
                "linkTypes": [],
                "rootDevices": [],
            },
        }
    ],
}
"""The configuration that most nodes start from, as users of the peer write it."""

Line = Mapping[str, Any]


class PluginProcess:
    """`rdma-plugin run` as a context manager: started on entering, ended by SIGTERM on leaving."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None) -> None:
        """`arguments` follow `run`; log lines are asked for as JSON, and no HTTP server unless `arguments` or `env` say so."""
        self._command = [sys.executable, "-m", "rdma_plugin", "run", "--log-format", "json", *arguments]
        self._env = {**os.environ, "RDMA_PLUGIN_HTTP_ADDRESS": "", **(env or {})}
        self._lines: list[Line] = []
        self._raw: list[str] = []
        self._arrived = threading.Condition()
        self._ended = False
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env=self._env,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def process(self) -> subprocess.Popen[str]:
        """The process; it has been started."""
        assert self._process is not None, "not started"
        return self._process

    @property
    def lines(self) -> list[Line]:
        """The log lines so far, parsed."""
        with self._arrived:
            return list(self._lines)

    @property
    def text(self) -> str:
        """All that the process wrote to stderr so far."""
        with self._arrived:
            return "\n".join(self._raw)

    def wait_line(self, wanted: Callable[[Line], object], deadline_s: float = 10, after: int = 0) -> Line:
        """Return the first log line that `wanted` accepts, be it written already or to come; skip the first `after`."""
        end = time.monotonic() + deadline_s
        seen = after
        with self._arrived:
            while True:
                for line in self._lines[seen:]:
                    if wanted(line):
                        return line
                seen = len(self._lines)
                left_s = end - time.monotonic()
                if self._ended or left_s <= 0 or not self._arrived.wait(left_s):
                    raise AssertionError(f"no such log line; the plugin wrote:\n{chr(10).join(self._raw)}")

    def stop(self, deadline_s: float = 10) -> int:
        """Send SIGTERM and wait; return the exit code. Nothing is sent to a process that has ended."""
        if self.process.poll() is None:
            self.process.terminate()
        return self.wait(deadline_s)

    def kill(self) -> None:
        """End the process as a crash would (SIGKILL)."""
        self.process.kill()
        self.wait()

    def wait(self, deadline_s: float = 10) -> int:
        """Wait until the process has ended and its last line is read; return the exit code."""
        try:
            code = self.process.wait(deadline_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the plugin didn't end within {deadline_s:g} s; it wrote:\n{self.text}") from None
        if self._reader:
            self._reader.join()
        return code

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as stream:
            for raw in stream:
                text = raw.rstrip("\n")
                try:
                    line = json.loads(text)
                except ValueError:
                    line = {"event": text, "level": "raw"}
                with self._arrived:
                    self._raw.append(text)
                    self._lines.append(line)
                    self._arrived.notify_all()
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()
