# SPDX-License-Identifier: Apache-2.0
"""Make what `guest.py` boots: `python -m tests.guest.build` prints the folder it lies in.

In: the packages of this machine's own Debian suite. Out, in one folder of the cache: `vmlinux` and `initramfs` of its
stock kernel, `lib/modules` with the modules named below, `version`, and `root`, into which the packages
are unpacked whose programs this machine lacks. Nothing is installed; root is needed only to read apt's package lists
anew. Built once; later calls only print the folder. Progress goes to stderr.
"""

import hashlib
import json
import lzma
import os
import platform
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.rig.build import GIB, NeedsError, run, say

HERE = Path(__file__).resolve().parent
PROGRAMS = {
    "qemu-system-x86_64": ("qemu-system-x86", "seabios"),
    "modprobe": ("kmod",),
    "ip": ("iproute2",),
    "rdma": ("iproute2",),
}
"""Program -> Debian packages that bring it."""
BOOT_MODULES = ("virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_console")
"""For the root and the port of the agent."""
MODULES = (
    *("ib_uverbs", "ib_umad", "rdma_cm", "rdma_ucm", "rdma_rxe", "crc32_generic", "crc32_pclmul"),
    *("dummy", "veth", "bridge", "virtio_net"),
)
"""What tests may load; those that these depend on come along."""
FREE_BYTES = 2 * GIB
"""While it is being made; 60 MB are left in the end."""
SYSTEM_PATH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Places(NamedTuple):
    """Where programs and their libraries are found, on the host as in the guest."""

    path: str
    libraries: str


def places(out: Path) -> Places:
    """The machine's own folders first, then what was unpacked for want of them."""
    root = out / "root"
    folders = [root / name for name in ("usr/sbin", "usr/bin", "sbin", "bin")]
    libraries = [*root.glob("usr/lib/*-linux-gnu"), *root.glob("lib/*-linux-gnu")]
    return Places(":".join([*SYSTEM_PATH, *map(str, folders)]), ":".join(map(str, sorted(libraries))))


def missing() -> list[str]:
    """The programs that this machine lacks."""
    return [program for program in PROGRAMS if not shutil.which(program, path=":".join(SYSTEM_PATH))]


def cache_folder() -> Path:
    """Folder for these scripts, this Debian and what the machine lacks of it."""
    digest = hashlib.sha256(json.dumps([platform.machine(), debian(), missing()]).encode())
    for name in ("build.py", "init.sh", "agent.py"):
        digest.update((HERE / name).read_bytes())
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    base = os.environ.get("RDMA_PLUGIN_GUEST_CACHE") or Path(home) / "rdma-plugin" / "guest"
    return Path(base).resolve() / digest.hexdigest()[:16]


def debian() -> str:
    """Name and version of this system, as `debian 12`."""
    release = platform.freedesktop_os_release()
    return f"{release['ID']} {release.get('VERSION_ID', '')}"


def check_needs(out: Path) -> None:
    """Raises: NeedsError with the first thing that would make the build fail later."""
    if platform.machine() != "x86_64":
        raise NeedsError(
            f"the guest is an x86-64 one that runs this machine's own programs; this is {platform.machine()}"
        )
    for program in ("apt-get", "apt-cache", "dpkg-deb"):
        if not shutil.which(program):
            raise NeedsError(f"the program '{program}' is missing: kernel and QEMU come from Debian packages")
    there = next(path for path in (out, *out.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < FREE_BYTES:
        raise NeedsError(f"{there} has {free / GIB:.1f} GiB free, {FREE_BYTES / GIB:.0f} GiB are needed for {out}")


def kernel_package() -> str:
    """The package that linux-image-amd64 stands for today, as `linux-image-6.1.0-57-amd64`."""
    asked = ["apt-cache", "show", "--no-all-versions", "linux-image-amd64"]
    described = subprocess.run(asked, capture_output=True, text=True, check=False).stdout
    found = re.search(r"^Depends:.*?\b(linux-image-\d\S*)", described, re.MULTILINE)
    if not found:
        raise NeedsError(
            "apt doesn't know linux-image-amd64: run `apt-get update` with Debian's main among its sources"
        )
    return found[1]


def download(programs: Iterable[str], work: Path) -> str:
    """Fetch kernel and busybox into `work/kernel`, the packages of `programs` with all they need into `work/debs`.

    Returns the kernel package's name.
    """
    for folder in ("kernel", "debs/partial"):
        (work / folder).mkdir(parents=True, exist_ok=True)
    kernel = kernel_package()
    quiet = ["apt-get", "-qq", "-o", "APT::Sandbox::User=root"]  # _apt can't write to a private folder
    say(f"fetching Debian's {kernel} (70 MB)")
    run([*quiet, "download", kernel, "busybox-static"], work / "kernel")
    packages = sorted({package for program in programs for package in PROGRAMS[program]})
    if packages:
        say(f"fetching Debian's {' '.join(packages)} and what they need; they are not installed")
        options = [f"Dir::Cache::archives={work}/debs", "Debug::NoLocking=1", "APT::Get::ReInstall=1"]
        settings = [word for option in options for word in ("-o", option)]
        run([*quiet, *settings, "install", "--download-only", "--no-install-recommends", "-y", *packages], work)
    return kernel


def fetch(programs: Iterable[str], work: Path) -> str:
    """`download`, with apt's package lists read anew if it fails with those that are there."""
    try:
        return download(programs, work)
    except NeedsError as err:
        if os.geteuid() != 0:
            raise
        say(str(err))
    say("reading apt's package lists anew")
    run(["apt-get", "-qq", "update"], HERE)
    return download(programs, work)


def unpack(archives: Path, target: Path) -> None:
    """Unpack all packages of a folder."""
    target.mkdir()
    for archive in sorted(archives.glob("*.deb")):
        run(["dpkg-deb", "-x", archive, target], HERE)


def extract_vmlinux(image: bytes) -> bytes:
    """Take the ELF kernel out of a bzImage (Documentation/x86/boot.rst); QEMU boots it twice as fast as the bzImage.

    Returns the image itself where it isn't packed with xz: QEMU boots that too.
    """
    setup_bytes = ((image[0x1F1] or 4) + 1) * 512
    offset, length = struct.unpack_from("<II", image, 0x248)
    payload = image[setup_bytes + offset : setup_bytes + offset + length]
    if not payload.startswith(b"\xfd7zXZ\0"):
        return image
    return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)


class Modules:
    """The modules of an unpacked kernel package, by name."""

    def __init__(self, tree: Path) -> None:
        """`tree` is `lib/modules/VERSION`."""
        self._tree = tree
        self._paths = {path.name.split(".ko")[0].replace("-", "_"): path for path in tree.rglob("*.ko*")}
        self._builtin = {Path(line).stem.replace("-", "_") for line in self._lines("modules.builtin")}

    def _lines(self, name: str) -> list[str]:
        return (self._tree / name).read_text().splitlines()

    def read(self, name: str) -> bytes:
        """A module as the kernel loads it."""
        path = self._paths[name]
        data = path.read_bytes()
        return lzma.decompress(data) if path.suffix == ".xz" else data

    def closure(self, names: Sequence[str]) -> list[str]:
        """These modules and all they need, each after those it needs.

        Raises: NeedsError for one that this kernel lacks.
        """
        order: list[str] = []

        def add(name: str) -> None:
            if name in order or name in self._builtin:
                return
            if name not in self._paths:
                raise NeedsError(f"this kernel has no module {name}")
            needs = re.search(rb"\0depends=([^\0]*)\0", self.read(name))
            for need in needs[1].decode().split(",") if needs and needs[1] else ():
                add(need.replace("-", "_"))
            order.append(name)

        for name in names:
            add(name)
        return order

    def install(self, names: Sequence[str], target: Path) -> None:
        """Make a `lib/modules/VERSION` with these modules and what they need, for modprobe."""
        for name in self.closure(names):
            path = target / self._paths[name].relative_to(self._tree).with_name(f"{name}.ko")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(self.read(name))
        for name in ("modules.builtin", "modules.builtin.modinfo", "modules.order"):
            shutil.copy2(self._tree / name, target)


def initramfs(files: dict[str, bytes]) -> bytes:
    """Pack files as cpio (Documentation/driver-api/early-userspace/buffer-format.rst); folders are made as needed."""
    folders = sorted({str(folder) for name in files for folder in Path(name).parents if str(folder) != "."})
    entries = [(name, 0o040755, b"") for name in folders] + [(name, 0o100755, files[name]) for name in files]
    packed = b""
    for number, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], start=1):
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
        head = b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0"
        for part in (head, data):
            packed += part + b"\0" * (-len(part) % 4)
    return packed


def fill(work: Path, package: str, own_path: str) -> None:
    """Make the kernel's files in `work` out of its unpacked package."""
    version = package.removeprefix("linux-image-")
    unpacked = work / "unpacked"
    unpack(work / "kernel", unpacked)
    say("making vmlinux and initramfs")
    (image,) = (unpacked / "boot").glob("vmlinuz-*")
    (work / "vmlinux").write_bytes(extract_vmlinux(image.read_bytes()))
    (tree,) = (folder for folder in unpacked.glob("**/lib/modules/*") if folder.is_dir())
    modules = Modules(tree)
    boot = modules.closure(BOOT_MODULES)
    (busybox,) = (file for file in unpacked.glob("**/bin/busybox") if file.is_file())
    files = {"init": (HERE / "init.sh").read_bytes(), "agent.py": (HERE / "agent.py").read_bytes()}
    files |= {"bin/busybox": busybox.read_bytes(), "modules/order": "".join(f"{name}\n" for name in boot).encode()}
    files |= {f"modules/{name}": modules.read(name) for name in boot}
    (work / "initramfs").write_bytes(initramfs(files))
    target = work / "lib" / "modules" / tree.name
    target.mkdir(parents=True)
    modules.install(MODULES, target)
    run([depmod(own_path), "-b", work, tree.name], work)
    (work / "version").write_text(f"{version}\n")
    shutil.rmtree(unpacked)


def depmod(own_path: str) -> str:
    """The program; it comes with modprobe."""
    found = shutil.which("depmod", path=own_path)
    if not found:
        raise NeedsError("the program 'depmod' is missing (Debian: kmod)")
    return found


def build(out: Path) -> None:
    """Fill `out`, which appears whole or not at all."""
    began = time.monotonic()
    check_needs(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".building-", dir=out.parent))
    try:
        package = fetch(missing(), work)
        unpack(work / "debs", work / "root")
        own = places(work)
        os.environ["LD_LIBRARY_PATH"] = own.libraries
        fill(work, package, own.path)
        shutil.rmtree(work / "kernel")
        shutil.rmtree(work / "debs")
        work.chmod(0o755)
        if not out.exists():  # another build may have been quicker
            work.rename(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    say(f"built in {time.monotonic() - began:.0f} s: {out}")


def ensure() -> Path:
    """Build if need be, and return the folder. Raises: NeedsError."""
    out = cache_folder()
    if not out.is_dir():
        build(out)
    return out


def main() -> int:
    """0 with the folder on stdout, or 1 with one line on stderr."""
    try:
        out = ensure()
    except NeedsError as err:
        say(f"cannot build: {err}")
        return 1
    sys.stdout.write(f"{out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
