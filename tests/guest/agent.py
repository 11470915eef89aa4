# SPDX-License-Identifier: Apache-2.0
"""The guest's side of `guest.py`: runs commands that come in through a virtio port, one after another.

Comes in: a line of JSON for each command, `{"command", "deadline_s"}`. Goes out: `{"out": base64}` as the command
writes, then `{"rc"}`; a command that takes too long is killed with all that it started in its process group, and gives
124 as `timeout` does. Copied into the initramfs, so it stands on the standard library alone.
"""

import base64
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from io import FileIO
from pathlib import Path

PORT = "vport*p*"
"""There is only one in the guest; its numbers depend on what other virtio devices there are."""
PAUSE_S = 0.02
READ_BYTES = 1 << 16
TIMED_OUT = 124


def send(port: FileIO, **message: object) -> None:
    """Write one message; the driver takes at most 32 KiB at a time."""
    data = json.dumps(message).encode() + b"\n"
    while data:
        data = data[port.write(data) :]


def follow(process: "subprocess.Popen[bytes]", end: float, port: FileIO) -> bool:
    """Send what the process writes until it ends; False if it has not by `end`.

    A child that it left behind may keep the pipe open, so the process's own end counts, not the pipe's.
    """
    assert process.stdout is not None
    pidfd = os.pidfd_open(process.pid)
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)
        selector.register(pidfd, selectors.EVENT_READ)
        while True:
            ready = selector.select(max(0.0, end - time.monotonic()))
            if not ready or time.monotonic() > end:  # or: one that writes faster than the host reads never pauses
                os.close(pidfd)
                return False
            files = [key.fileobj for key, _ in ready]
            if process.stdout in files:
                data = os.read(process.stdout.fileno(), READ_BYTES)
                if data:
                    send(port, out=base64.b64encode(data).decode())
                    continue
                selector.unregister(process.stdout)
            if pidfd in files:
                os.close(pidfd)
                return True


def run(command: str, deadline_s: float, port: FileIO) -> int:
    """Run a shell command; returns its status, 128 + n if signal n ended it."""
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    has_ended = follow(process, time.monotonic() + deadline_s, port)
    if not has_ended:
        os.killpg(process.pid, signal.SIGKILL)
    code = process.wait()
    if process.stdout:
        process.stdout.close()
    if not has_ended:
        return TIMED_OUT
    return code if code >= 0 else 128 - code


def main() -> int:
    """Serve until the host is gone."""
    while not (ports := list(Path("/dev").glob(PORT))):  # the driver hears of its ports after it has loaded
        time.sleep(PAUSE_S)
    with ports[0].open("r+b", buffering=0) as raw:
        send(raw, ready=time.monotonic())
        data = b""
        while chunk := raw.read(READ_BYTES):
            data += chunk
            while b"\n" in data:
                line, data = data.split(b"\n", 1)
                asked = json.loads(line)
                send(raw, rc=run(asked["command"], asked["deadline_s"], raw))
    return 0


if __name__ == "__main__":
    sys.exit(main())
