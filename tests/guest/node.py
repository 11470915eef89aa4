# SPDX-License-Identifier: Apache-2.0
"""What an administrator or a driver does to the guest's kernel: modules, soft-RoCE devices, links, network namespace mode.

Every function runs the program that a person would run, and raises RigError with what it said if it fails. Nothing here
works outside the guest: a machine's own RDMA devices are not for tests.
"""

import subprocess
from pathlib import Path

from tests.rig.wait import RigError

NETDEV = "rail0"
ALTNAME = "rail-a-with-a-name-that-only-netlink-tells"
SPARE = "spare0"
"""A second interface, for a device that takes a number away."""
UNLOAD = ("rdma_rxe", "rdma_ucm", "ib_umad")
"""What to remove so that nothing of the RDMA stack stays: modprobe takes along what these alone needed."""
MODULES = ("ib_uverbs", "ib_umad", "rdma_ucm", "rdma_rxe", "crc32_generic", "dummy")


def require_guest() -> None:
    """Raises: RigError on any machine but a guest."""
    if "guest_python=" not in Path("/proc/cmdline").read_text():
        raise RigError("these tests change the kernel's RDMA devices: run them by `make test-guest`")


def run(command: str) -> None:
    """Run a program and its arguments, given in one line."""
    done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RigError(f"`{command}` failed with status {done.returncode}: {(done.stderr or done.stdout).strip()}")


def rdma_devices() -> list[str]:
    """Names of the kernel's RDMA devices."""
    folder = Path("/sys/class/infiniband")
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def has_link(name: str) -> bool:
    """Whether there is such a network interface."""
    return Path("/sys/class/net", name).exists()


def load_modules() -> None:
    """Load all of the RDMA stack; those that are loaded stay as they are."""
    run(f"modprobe -a {' '.join(MODULES)}")


def add_links() -> None:
    """Make the interfaces that soft-RoCE devices lie on, and set them up."""
    for name in (NETDEV, SPARE):
        if not has_link(name):
            run(f"ip link add {name} type dummy")
        run(f"ip link set {name} up carrier on")
    altnames = subprocess.run(["ip", "link", "show", NETDEV], capture_output=True, text=True, check=True).stdout
    if ALTNAME not in altnames:
        run(f"ip link property add dev {NETDEV} altname {ALTNAME}")


def add_device(name: str, netdev: str = NETDEV) -> None:
    """`rdma link add`."""
    run(f"rdma link add {name} type rxe netdev {netdev}")


def reset(device: str) -> None:
    """Whatever a test left: one soft-RoCE device `device` on NETDEV, links up, network namespace mode shared."""
    load_modules()
    run("rdma system set netns shared")
    add_links()
    if rdma_devices() != [device]:
        for name in rdma_devices():
            run(f"rdma link delete {name}")
        add_device(device)
