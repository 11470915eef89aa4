# SPDX-License-Identifier: Apache-2.0
"""Netlink answers of any bytes: a value or None, and never an error or a hang."""

import struct
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdma_plugin.host import netlink
from rdma_plugin.host.netlink import Link
from tests.fuzz.examples import TIMEOUT_S, inputs
from tests.fuzz.mutations import mutated

_LINK_KINDS = (1, 3, 18, 52, 53)
"""IFLA_ADDRESS, IFLA_IFNAME, IFLA_LINKINFO, IFLA_PROP_LIST, IFLA_ALT_IFNAME."""
_RDMA_KINDS = (1, 2, 51, 66)
"""The ones that are read."""
_RDMA_NAMES = ("dev_index", "dev_name", "ndev_name", "netns_mode")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(TIMEOUT_S)]


def attribute(kind: int, value: bytes, length: int | None = None) -> bytes:
    """Encode an attribute; with `length`, one that lies about its own."""
    stated = 4 + len(value) if length is None else length
    return struct.pack("=HH", stated & 0xFFFF, kind & 0xFFFF) + value + bytes(-len(value) % 4)


def attributes(kinds: tuple[int, ...]) -> st.SearchStrategy[bytes]:
    """Draw attributes, nested or not, some of which lie."""
    kind = st.one_of(st.sampled_from(kinds), st.integers(0, 0xFFFF))
    length = st.one_of(st.none(), st.integers(0, 40))
    value = st.one_of(st.binary(max_size=20), st.sampled_from([b"eth0\0", b"\xff\0", b"\1\0\0\0", b""]))
    one = st.builds(attribute, kind, value, length)
    nested = st.builds(attribute, kind, st.lists(one, max_size=3).map(b"".join), length)
    return mutated(st.lists(st.one_of(one, nested), max_size=4).map(b"".join)) | st.binary(max_size=120)


@inputs(short=150)
@given(attributes(_LINK_KINDS), st.binary(min_size=16, max_size=16))
def test_any_link_answer(data: bytes, header: bytes) -> None:
    """An interface with text for a name, or nothing."""

    async def read(pyroute2: ModuleType) -> Link | None:
        head = struct.pack("=IHHII", 32 + len(data), 16, 0, 1, 0) + header
        message = pyroute2.netlink.rtnl.ifinfmsg.ifinfmsg(head + data)
        message.decode()
        return netlink.link(message)

    found = netlink.ask(read)
    assert found is None or isinstance(found.name, str)
    assert all(isinstance(altname, str) for altname in (found.altnames if found else ()))


@inputs(short=150)
@given(attributes(_RDMA_KINDS))
def test_any_rdma_answer(data: bytes) -> None:
    """Each attribute is told or not, and the answer as a whole may be none."""

    async def read(pyroute2: ModuleType) -> dict[str, Any]:
        head = struct.pack("=IHHII", 16 + len(data), 5 << 10 | 1, 0, 1, 0)
        message = netlink.nldev(pyroute2.netlink.nlmsg)(head + data)
        message.decode()
        return {name: message.get(name) for name in _RDMA_NAMES}

    told = netlink.ask(read)
    assert told is None or set(told) == set(_RDMA_NAMES)
