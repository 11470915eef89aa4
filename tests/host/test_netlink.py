# SPDX-License-Identifier: Apache-2.0
"""Netlink: recorded and hand-built answers pin the attribute numbers, this machine's kernel is asked for real."""

import asyncio
import json
import socket
import struct
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroute2.netlink import nlmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg

from rdma_plugin.core.model import NetnsMode
from rdma_plugin.host import netlink, scan
from rdma_plugin.host.netlink import Link

_RECORDED = Path(__file__).parent / "recorded"
_ALTNAMES = ["enp24s0np0", "ens3"]
_TELL_ALTNAMES = """
import json, sys
from pyroute2 import IPRoute
from rdma_plugin.host import netlink

if sys.argv[1:]:
    with IPRoute() as route:
        route.link("property_add", index=1, altname=sys.argv[1:])
print(json.dumps({link.name: link.altnames for link in netlink.links().values()}))
"""


def _recorded(name: str) -> bytes:
    if sys.byteorder == "big":
        pytest.fail("record the answers anew on this machine")
    lines = (_RECORDED / name).read_text().splitlines()
    return bytes.fromhex("".join(line for line in lines if not line.startswith("#")))


def _attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("=HH", length, kind) + value + bytes(-length % 4)


def _link(attributes: bytes) -> Link | None:
    """Read an RTM_NEWLINK with these attributes."""
    message = ifinfmsg(struct.pack("=IHHII", 32 + len(attributes), 16, 0, 1, 0) + bytes(16) + attributes)
    message.decode()
    return netlink.link(message)


def test_recorded_link() -> None:
    """The kernel's own bytes: alternative names sorted, no kind for a device without one."""
    message = ifinfmsg(_recorded("link-dump.hex"))
    message.decode()

    assert netlink.link(message) == Link(name="lo", altnames=("enp24s0np0", "ens3"))


def test_kind_of_a_link() -> None:
    """A bond says so in its nested link information."""
    attributes = _attribute(3, b"bond0\0") + _attribute(18, _attribute(1, b"bond\0"))

    assert _link(attributes) == Link(name="bond0", kind="bond")


def test_names_that_are_no_text_are_left_out() -> None:
    """The kernel allows any bytes in a name; such a name costs itself only."""
    altnames = _attribute(53, b"\xff\0") + _attribute(53, b"ens3\0")

    assert _link(_attribute(3, b"\xff\0")) is None
    assert _link(_attribute(3, b"eth0\0") + _attribute(52, altnames)) == Link(name="eth0", altnames=("ens3",))


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("rdma-device.hex", {"dev_index": 0, "dev_name": "rxe0"}),
        ("rdma-port.hex", {"dev_index": 0, "dev_name": "rxe0", "ndev_name": "d0"}),
        ("rdma-system.hex", {"netns_mode": 1}),
    ],
)
def test_recorded_rdma_answers(answer: str, told: dict[str, object]) -> None:
    """The kernel's own bytes: each attribute is under its number, and what isn't told is None."""
    message = netlink.nldev(nlmsg)(_recorded(answer))
    message.decode()

    names = ("dev_index", "dev_name", "ndev_name", "netns_mode")
    assert {name: message.get(name) for name in names} == dict.fromkeys(names) | told


def test_request_names_a_device_by_its_index() -> None:
    """The index goes out as the kernel reads it."""
    request = netlink.nldev(nlmsg)()
    request["attrs"] = [("DEV_INDEX", 7)]
    request.encode()

    assert bytes(request.data[16:]) == _attribute(1, struct.pack("=I", 7))


@given(st.binary(max_size=200))
def test_broken_answer_is_no_answer(data: bytes) -> None:
    """Whatever the bytes, nothing raises."""

    async def read(_: ModuleType) -> Link | None:
        return _link(_attribute(3, b"eth0\0") + data)

    assert isinstance(netlink.ask(read), Link | None)


def test_late_answer_is_no_answer() -> None:
    """What the kernel doesn't answer in time is unknown, and nothing stays open."""

    async def wait(pyroute2: ModuleType) -> str:
        async with pyroute2.AsyncIPRoute() as route:
            await route.setup_endpoint()
            await asyncio.Event().wait()
        return "answered"

    assert netlink.ask(wait, deadline_s=0) is None
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert netlink.ask(wait, deadline_s=0.01) is None
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_refused_question_is_no_answer() -> None:
    """A kernel that refuses is no error."""

    async def refuse(pyroute2: ModuleType) -> object:
        async with pyroute2.AsyncIPRoute() as route:
            return await route.link("get", index=2**31 - 1)

    assert netlink.ask(refuse) is None


def test_links_are_those_of_this_network_namespace() -> None:
    """Every interface that the system names is there under its name."""
    links = netlink.links()

    assert set(links) == {name for _, name in socket.if_nameindex()}
    assert all(link.name == name for name, link in links.items())


@pytest.mark.slow
def test_alternative_names_are_told() -> None:
    """Names added to lo in a network namespace of its own; on a machine that allows none, only what is there is told."""
    namespaces = (["unshare", "-rn"], ["unshare", "-n"])
    allowed = [command for command in namespaces if not subprocess.run([*command, "true"], check=False).returncode]
    program = [sys.executable, "-c", _TELL_ALTNAMES]
    command = [*allowed[0], *program, *_ALTNAMES] if allowed else program
    told = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)

    assert all(altnames == sorted(altnames) for altnames in told.values())
    assert told["lo"] == _ALTNAMES or not allowed


@pytest.mark.slow
def test_pyroute2_is_loaded_only_to_ask() -> None:
    """Its memory and its time are for hosts with devices: neither another root nor a host without devices pays."""
    code = "import sys, rdma_plugin.cli, rdma_plugin.daemon; sys.exit('pyroute2' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_unknown_device_has_no_interfaces() -> None:
    """A device that netlink doesn't know is left out, with RDMA netlink or without."""
    assert netlink.port_netdevs(["no-such-device"]) == {}
    assert netlink.port_netdevs([]) == {}


def test_netns_mode_is_known_or_none() -> None:
    """A kernel without RDMA can't tell; that is no error."""
    assert netlink.netns_mode() in (None, *NetnsMode)


def test_this_machine_can_be_scanned() -> None:
    """The real /sys gives an inventory; a machine without RDMA devices says what to do."""
    inventory = scan.scan(Path("/"))

    assert inventory.devices or inventory.problems
    assert all(problem.hint for problem in inventory.problems)
