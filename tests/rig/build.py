# SPDX-License-Identifier: Apache-2.0
"""Make the real programs that `make test-kubelet` runs, and print the folder they lie in.

In: the pinned Go modules beside this file (two kubelets, containerd) and Debian's runc and static busybox. Out, in one
folder named after a hash of those pins: `kubelet-VERSION`..., `containerd`, `containerd-shim-runc-v2`, `ctr`, `runc`,
`busybox` and `image.tar`, the one image that pods run. Built once; later calls only print the folder. Progress goes to
stderr, the folder alone to stdout. No registry of images is asked, and nothing is installed unless `ip` is missing.
"""

import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
MODULES = ("containerd", "kubelet-1.34", "kubelet-1.37")
IMAGE = "localhost/rig:1"
GIB = 1 << 30
CACHE_BYTES = 8 * GIB
"""For each of Go's two caches, if it isn't there yet; measured after a cold build: 1.9 and 4.9 GiB."""
OUT_BYTES = GIB
"""The programs themselves, measured 0.25 GiB; also for a cache that is there."""


class NeedsError(Exception):
    """The machine lacks something; the text says what, in one line."""


def say(text: str) -> None:
    """Tell the person who waits."""
    sys.stderr.write(f"rig: {text}\n")


def run(command: Sequence[str | Path], cwd: Path, **env: str) -> str:
    """Run a program and return its stdout; what it says on stderr is shown. Raises: NeedsError if it fails."""
    try:
        process = subprocess.Popen(command, cwd=cwd, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True)
    except FileNotFoundError:
        raise NeedsError(f"the program '{command[0]}' is missing") from None
    began = time.monotonic()
    with process:
        while True:
            try:
                out, _ = process.communicate(timeout=30)
                break
            except subprocess.TimeoutExpired:
                say(f"  still at it after {time.monotonic() - began:.0f} s")
    if process.returncode != 0:
        shown = " ".join(map(str, command[:3]))
        raise NeedsError(f"'{shown} ...' in {cwd} failed with status {process.returncode}; its reason is above")
    return out


def cache_folder() -> Path:
    """Folder for this set of pins: another pin, another script or another machine type is another folder."""
    digest = hashlib.sha256(platform.machine().encode())
    for path in [Path(__file__), *(HERE / module / f"go.{kind}" for module in MODULES for kind in ("mod", "sum"))]:
        digest.update(path.read_bytes())
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    base = os.environ.get("RDMA_PLUGIN_RIG_CACHE") or Path(home) / "rdma-plugin" / "rig"
    return Path(base).resolve() / digest.hexdigest()[:16]


def numbers(version: str) -> tuple[int, ...]:
    """`go1.26.8` or `1.26.0` as numbers that compare."""
    return tuple(int(part) for part in re.findall(r"\d+", version))


def check_needs(out: Path) -> None:
    """Raises: NeedsError with the first thing that would make the build fail later."""
    needs = {"go": "Go's own archive, Debian's is too old", "apt-get": "Debian's apt", "unshare": "Debian's util-linux"}
    for program, source in needs.items():
        if not shutil.which(program):
            raise NeedsError(f"the program '{program}' is missing (from {source})")
    for module in MODULES:
        wanted = re.findall(r"(?m)^go (\S+)", (HERE / module / "go.mod").read_text())[0]
        # Asked in the module's folder: where Go may fetch a newer toolchain by itself, this is the newer one.
        found = run(["go", "env", "GOVERSION"], HERE / module).strip()
        if numbers(found) < numbers(wanted):
            raise NeedsError(f"{shutil.which('go')} is {found}, {module} needs go {wanted} or newer")
    caches = [Path(cache) for cache in run(["go", "env", "GOCACHE", "GOMODCACHE"], HERE).split()]
    for folder in (out, *caches):
        need = CACHE_BYTES if folder in caches and not folder.exists() else OUT_BYTES
        there = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(there).free
        if free < need:
            raise NeedsError(f"{there} has {free / GIB:.1f} GiB free, {need / GIB:.0f} GiB are needed for {folder}")


def build_module(module: str, out: Path) -> None:
    """Build the `tool` lines of one Go module; a kubelet gets its version in its name and in its own answer."""
    pinned = re.search(r"(?m)^\s*(?:require )?k8s.io/kubernetes (v\S+)", (HERE / module / "go.mod").read_text())
    # Without the linker's help a kubelet calls itself v0.0.0-master.
    flags = f"-s -w -X k8s.io/component-base/version.gitVersion={pinned[1]}" if pinned else "-s -w"
    say(f"building {module} (1 to 5 minutes on 2 cores the first time, seconds when Go's cache has it)")
    env = {"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false"}
    run(["go", "build", "-trimpath", "-ldflags", flags, "-o", f"{out}/", "tool"], HERE / module, **env)
    if pinned:
        (out / "kubelet").rename(out / f"kubelet-{pinned[1].removeprefix('v')}")


def unpack_debian(package: str, file: str, target: Path) -> None:
    """Take one program out of a Debian package without installing it."""
    say(f"fetching Debian's {package}")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)  # apt drops its privileges to write here
        download = ["apt-get", "-qq", "download", package]
        if subprocess.run(download, cwd=folder, stderr=subprocess.DEVNULL, check=False).returncode != 0:
            say("apt doesn't find it, reading its package lists anew")
            run(["apt-get", "-qq", "update"], folder)
            run(download, folder)
        run(["dpkg-deb", "-x", next(folder.glob("*.deb")), folder / "root"], folder)
        shutil.copy2(folder / "root" / file, target)


def write_image(busybox: Path, out: Path) -> None:
    """Write an OCI archive (image-spec v1) whose only layer is busybox; without a command it sleeps, as a sandbox must."""

    def pack(files: dict[str, bytes], links: Sequence[str] = ()) -> bytes:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w") as tar:
            for name, content in files.items():
                info = tarfile.TarInfo(name)
                info.size, info.mode = len(content), 0o755
                tar.addfile(info, io.BytesIO(content))
            for name in links:
                info = tarfile.TarInfo(f"bin/{name}")
                info.type, info.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(info)
        return buffer.getvalue()

    blobs: dict[str, bytes] = {}

    def blob(kind: str, content: bytes | dict[str, Any]) -> dict[str, Any]:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        sha = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{sha}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{sha}", "size": len(data)}

    applets = [name for name in run([busybox, "--list"], out.parent).split() if name != "busybox"]
    layer = blob("layer.v1.tar", pack({"bin/busybox": busybox.read_bytes()}, applets))
    machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
    config = {
        "architecture": machine,
        "os": "linux",
        "config": {"Env": ["PATH=/bin"], "Cmd": ["/bin/sleep", "2147483647"]},
        "rootfs": {"type": "layers", "diff_ids": [layer["digest"]]},
    }
    manifest = {"schemaVersion": 2, "config": blob("config.v1+json", config), "layers": [layer]}
    entry = blob("manifest.v1+json", manifest) | {"annotations": {"io.containerd.image.name": IMAGE}}
    index = {"schemaVersion": 2, "manifests": [entry]}
    top = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode()}
    out.write_bytes(pack(top | blobs))


def build(out: Path) -> None:
    """Fill `out`, which appears whole or not at all."""
    began = time.monotonic()
    if os.geteuid() != 0:
        raise NeedsError("root is needed: a kubelet, containerd and runc mount, make namespaces and cgroups")
    check_needs(out)
    if not shutil.which("ip"):
        say("installing Debian's iproute2")
        run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", "iproute2"], HERE)
    out.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".building-", dir=out.parent))
    try:
        unpack_debian("busybox-static", "bin/busybox", work / "busybox")
        unpack_debian("runc", "usr/sbin/runc", work / "runc")
        run([work / "runc", "--version"], work)  # it needs libseccomp2, which Debian's apt also needs
        write_image(work / "busybox", work / "image.tar")
        for module in MODULES:
            build_module(module, work)
        work.chmod(0o755)
        if not out.exists():  # another build may have been quicker
            work.rename(out)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    say(f"built in {time.monotonic() - began:.0f} s: {out}")


def main() -> int:
    """Build if need be; 0 with the folder on stdout, or 1 with one line on stderr."""
    out = cache_folder()
    try:
        if not out.is_dir():
            build(out)
    except NeedsError as err:
        say(f"cannot build: {err}")
        return 1
    sys.stdout.write(f"{out}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
