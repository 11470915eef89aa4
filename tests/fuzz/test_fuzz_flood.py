# SPDX-License-Identifier: Apache-2.0
"""The same doors as the other tests of this folder, with plain random accidents: a hundred times as many inputs.

An input is named by its number: `random.Random(number)` makes it again.
"""

import json
import random
import struct
from types import ModuleType

import grpc
import pytest

from rdma_plugin.core import config, explain, pools
from rdma_plugin.core.errors import ConfigError
from rdma_plugin.host import netlink, scan
from rdma_plugin.host.netlink import Link
from rdma_plugin.pb import deviceplugin_v1beta1_pb2 as pb
from tests.core.corpus import HOSTILE, document, resource
from tests.fuzz.doors import CLEAN, CONFIG, METHODS, UNDECODABLE, Target, Tree
from tests.fuzz.examples import ASKED
from tests.fuzz.test_fuzz_netlink import attribute

INPUTS = 50 * ASKED or 1000
SLOWER = INPUTS // 5
"""Where an input is a call or a scan."""
ATTRIBUTES = 50
"""Texts in one scan, each of which counts as an input."""
PIECES = (b"", b"\0", b"\xff", b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"9" * 20, b"-", b"1e9", b"null", b"\n")
FULL = document(
    selectors={"vendors": ["15b3"], "pfNames": ["ens1f0#0-3,7"], "pciAddresses": ["0000:3b:00.0"], "linkTypes": ["ib"]},
    exclude={"ifNames": ["ib[0-3]"], "numaNodes": [1]},
    charDevices=["uverbs", "rdma_cm"],
    health="any",
    env=True,
)
SEEDS = [FULL, json.dumps({"configList": [resource(), resource(resourceName="b")]}).encode()]
SEEDS += [text for text in HOSTILE.values() if len(text) < 2000]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60 + INPUTS // 100)]


def damaged(data: bytes, chance: random.Random) -> bytes:
    """Return the bytes after one to five accidents."""
    for _ in range(chance.randint(1, 5)):
        begin = chance.randint(0, len(data))
        end = begin + chance.randint(0, 6)
        match chance.randrange(4):
            case 0:
                piece = chance.choice(PIECES)
            case 1:
                piece = chance.randbytes(chance.randint(1, 4))
            case 2:
                piece = data[begin:end] * 2
            case _:
                piece = b""
        data = data[:begin] + piece + data[end if chance.randrange(2) else begin :]
    return data


def test_flood_of_configurations() -> None:
    """Each text is a configuration or a ConfigError, and both are met."""
    refused = 0
    for number in range(INPUTS):
        chance = random.Random(number)  # noqa: S311 - accidents, not secrets
        text = damaged(chance.choice(SEEDS[: 2 + number % 2 * len(SEEDS)]), chance)
        try:
            config.parse(text, "config.json")
        except ConfigError:
            refused += 1
    assert 0 < refused < INPUTS


def test_flood_of_attribute_texts(tree: Tree) -> None:
    """Each scan of a node full of damaged attributes comes through, and what it finds can be encoded."""
    for number in range(SLOWER // ATTRIBUTES):
        chance = random.Random(number)  # noqa: S311 - accidents, not secrets
        paths = chance.sample(tree.paths, ATTRIBUTES)
        try:
            for path in paths:
                path.write_bytes(damaged(tree.texts[path], chance))
            inventory = scan.scan(tree.root)
            json.dumps(explain.report(inventory, pools.build(CONFIG, inventory, {}))).encode()
        finally:
            for path in paths:
                path.write_bytes(tree.texts[path])
    assert scan.scan(tree.root).problems == ()


def test_flood_of_netlink_answers() -> None:
    """Each answer is a value or none."""
    names = attribute(3, b"eth0\0") + attribute(18, attribute(1, b"bond\0"))
    names += attribute(52, attribute(53, b"enp24s0np0\0") + attribute(53, b"ens3\0"))
    told = (
        attribute(1, struct.pack("=I", 7)) + attribute(2, b"mlx5_0\0") + attribute(51, b"eth0\0") + attribute(66, b"\1")
    )
    for number in range(SLOWER):
        chance = random.Random(number)  # noqa: S311 - accidents, not secrets
        is_link = chance.randrange(2)
        data = damaged(names if is_link else told, chance)

        async def read(pyroute2: ModuleType, *, is_link: int = is_link, data: bytes = data) -> Link | None:
            head = struct.pack("=IHHII", 32 + len(data), 16, 0, 1, 0) + bytes(16 * is_link)
            kind = pyroute2.netlink.rtnl.ifinfmsg.ifinfmsg if is_link else netlink.nldev(pyroute2.netlink.nlmsg)
            message = kind(head + data)
            message.decode()
            return netlink.link(message) if is_link else None

        assert isinstance(netlink.ask(read), Link | None)


def test_flood_of_requests(target: Target) -> None:
    """Each gets a clean status, and the process serves on."""
    containers = [
        pb.ContainerAllocateRequest(devices_ids=["1", "22"]),
        pb.ContainerAllocateRequest(devices_ids=["199"]),
    ]
    seeds = [
        pb.AllocateRequest(container_requests=containers).SerializeToString(),
        b"\n\x0c\n\x013\x12\x013\x18\x02",
        b"",
    ]
    for number in range(SLOWER):
        chance = random.Random(number)  # noqa: S311 - accidents, not secrets
        code, text = target.call(chance.choice(METHODS[:3]), damaged(chance.choice(seeds), chance))
        assert code in CLEAN or (code is grpc.StatusCode.UNKNOWN and UNDECODABLE in text), (number, code, text)
    assert target.call(METHODS[0], b"") == (grpc.StatusCode.OK, "")
    for line in target.new_lines():
        assert "error" not in line, line  # a traceback
