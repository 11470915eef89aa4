# SPDX-License-Identifier: Apache-2.0
"""`Guest`: a machine with a real Linux kernel of its own, emulated by QEMU, that sees this machine's files.

Comes in: the folder that build.py makes. Goes out: the results of shell commands, which run one after another in one
guest. The guest's root is the host's `/` under a writable layer in memory: same Python, same checkout, same paths, and
nothing that it writes reaches the host. Emulation is pure software: no KVM, no root, no network; about 15 times slower
than the host.
"""

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from tests.guest.build import places
from tests.rig.wait import RigError

BOOT_S = 90.0
"""Measured: 2.5 s on two idle cores."""
GRACE_S = 15.0
"""The guest itself ends a command at its deadline; if nothing is heard so long after it, the guest hangs."""
MEMORY_MIB = 768
CPUS = 2
CONSOLE_LINES = 45
"""How many of the console's last lines an error quotes: more than the kernel's own report when init dies."""
NOISE = "warning: TCG doesn't support"
"""QEMU says so of features of the chosen processor that nothing here needs."""
RECEIVE_BYTES = 1 << 16
CWD = Path(__file__).resolve().parents[2]


class Result(NamedTuple):
    """How a command in the guest ended."""

    rc: int
    """Its status; 124: killed at its deadline; 128 + n: signal n ended it."""
    out: str
    """What it wrote to stdout and stderr."""


class Guest:
    """A booted guest, as a context manager; on leaving, QEMU is killed and nothing of it is left but the console's log."""

    def __init__(self, folder: Path) -> None:
        """`folder` is what build.py made; `console.log` is put there at the end."""
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._link: socket.socket | None = None
        self._received = b""
        self._work: Path | None = None

    def __enter__(self) -> Self:
        self._work = Path(tempfile.mkdtemp(prefix="guest-"))
        try:
            self._boot(self._work / "console.log")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, err: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, command: str, deadline_s: float, show: Callable[[str], object] | None = None) -> Result:
        """Run a shell command in the checkout's folder; `show` gets its output piece by piece as it comes.

        Raises:
            RigError: the guest is gone or hangs; the text ends with what its console said last.
        """
        assert self._link is not None, "not booted"
        self._link.sendall(json.dumps({"command": command, "deadline_s": deadline_s}).encode() + b"\n")
        end = time.monotonic() + deadline_s + GRACE_S
        pieces: list[bytes] = []
        while "rc" not in (message := self._receive(end, f"the end of {command!r}")):
            pieces.append(base64.b64decode(message["out"]))
            if show:
                show(pieces[-1].decode(errors="replace"))
        return Result(message["rc"], b"".join(pieces).decode(errors="replace"))

    @property
    def console(self) -> str:
        """What kernel and init wrote so far."""
        log = (self._work or self._folder) / "console.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def _boot(self, log: Path) -> None:
        self._link, theirs = socket.socketpair()
        with theirs, log.open("wb") as console:
            self._process = subprocess.Popen(
                [*_pdeathsig(), *_qemu(self._folder, theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
                pass_fds=[theirs.fileno()],
                env={
                    **os.environ,
                    "PATH": places(self._folder).path,
                    "LD_LIBRARY_PATH": places(self._folder).libraries,
                },
            )
        self._receive(time.monotonic() + BOOT_S, "the guest's agent")

    def _receive(self, end: float, what: str) -> dict[str, Any]:
        """Wait for the next message of the agent."""
        assert self._link is not None, "not booted"
        while b"\n" not in self._received:
            self._link.settimeout(max(0.001, end - time.monotonic()))
            try:
                data = self._link.recv(RECEIVE_BYTES)
            except TimeoutError:
                raise self._error(f"no sign in time of {what}; does the guest hang?") from None
            if not data:
                raise self._error(f"the guest ended while the rig waited for {what}")
            self._received += data
        line, self._received = self._received.split(b"\n", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def _error(self, text: str) -> RigError:
        last = [line for line in self.console.splitlines() if NOISE not in line][-CONSOLE_LINES:]
        return RigError("\n  ".join([f"{text}. The console's last lines:", *last]))

    def _end(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._link is not None:
            self._link.close()
        if self._work is not None:
            log = self._work / "console.log"
            if log.exists() and os.access(self._folder, os.W_OK):
                shutil.copyfile(log, self._folder / log.name)
            shutil.rmtree(self._work)
        self._process = self._link = self._work = None


def _pdeathsig() -> list[str]:
    """A prefix with which a program dies with the rig, however that ends."""
    return ["setpriv", "--pdeathsig", "KILL"] if shutil.which("setpriv") else []


def _qemu(folder: Path, agent_fd: int) -> list[str]:
    """The command line; unknown words of the kernel's become variables of init.sh."""
    own = places(folder)
    words = {
        "guest_python": os.path.realpath(sys.executable),
        "guest_path": f"{Path(sys.executable).parent}:{own.path}",
        "guest_libraries": own.libraries,
        "guest_modules": str(folder),
        "guest_folder": str(CWD),
    }
    kernel = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable no_timer_check random.trust_cpu=on "
    shared = "local,id=root,path=/,security_model=none,readonly=on,multidevs=remap"
    drivers = folder / "root" / "usr" / "share" / "qemu"
    firmware = ["-L", str(drivers), "-L", str(folder / "root/usr/share/seabios")] if drivers.is_dir() else []
    return [
        *("qemu-system-x86_64", *firmware, "-accel", "tcg,thread=multi", "-cpu", "EPYC", "-M", "q35"),
        *("-smp", str(CPUS), "-m", str(MEMORY_MIB), "-nodefaults", "-no-user-config", "-no-reboot"),
        *("-display", "none", "-serial", "stdio"),
        *("-kernel", str(folder / "vmlinux"), "-initrd", str(folder / "initramfs")),
        *("-append", kernel + " ".join(f'{name}="{value}"' for name, value in words.items())),
        *("-fsdev", shared, "-device", "virtio-9p-pci,fsdev=root,mount_tag=root"),
        *("-chardev", f"socket,id=agent,fd={agent_fd}", "-device", "virtio-serial-pci"),
        *("-device", "virtserialport,chardev=agent,name=agent"),
    ]
