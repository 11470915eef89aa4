# SPDX-License-Identifier: Apache-2.0
"""Texts of the kernel and of users: what they mean, and that nothing else means anything."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdma_plugin.core import parse
from rdma_plugin.core.model import LinkType, NetnsMode, PortState

_READERS: list[Callable[[str], object]] = [
    parse.pci_address,
    parse.hex_id,
    parse.link_layer,
    parse.link_word,
    parse.port_state,
    parse.rate_gbps,
    parse.device_number,
    parse.guid,
    parse.numa_node,
    parse.decimal,
    parse.netns_mode,
    parse.interface_name,
]


@pytest.mark.parametrize(
    ("read", "text", "value"),
    [
        (parse.pci_address, "0000:18:00.0", "0000:18:00.0"),
        (parse.pci_address, "18:00.0", "0000:18:00.0"),
        (parse.pci_address, "10000:E1:00.7", "10000:e1:00.7"),
        (parse.pci_address, "0000:18:00.8", None),
        (parse.pci_address, "0000:18:00", None),
        (parse.pci_address, "0000:18:00.0\n", None),
        (parse.hex_id, "0x15b3", "15b3"),
        (parse.hex_id, "15B3", "15b3"),
        (parse.hex_id, "0x0", "0000"),
        (parse.hex_id, "15b3f", None),
        (parse.hex_id, "", None),
        (parse.link_layer, "InfiniBand", LinkType.INFINIBAND),
        (parse.link_layer, "Ethernet", LinkType.ETHER),
        (parse.link_layer, "Unknown", LinkType.UNKNOWN),
        (parse.link_layer, "infiniband", None),
        (parse.link_word, "IB", LinkType.INFINIBAND),
        (parse.link_word, "RoCE", LinkType.ETHER),
        (parse.link_word, "iwarp", None),
        (parse.port_state, "4: ACTIVE", PortState.ACTIVE),
        (parse.port_state, "5: ACTIVE_DEFER", PortState.ACTIVE_DEFER),
        (parse.port_state, "ACTIVE", None),
        (parse.port_state, "9: FLYING", None),
        (parse.rate_gbps, "400 Gb/sec (4X NDR)", 400.0),
        (parse.rate_gbps, "2.5 Gb/sec (1X SDR)", 2.5),
        (parse.rate_gbps, "-1 Gb/sec", None),
        (parse.device_number, "231:192", (231, 192)),
        (parse.device_number, "231", None),
        (parse.guid, "58a2:e103:002a:09b8", "58a2:e103:002a:09b8"),
        (parse.guid, "0000:0000:0000:0000", None),
        (parse.guid, "58a2e103002a09b8", None),
        (parse.numa_node, "0", 0),
        (parse.numa_node, "-1", None),
        (parse.numa_node, "٣", None),
        (parse.decimal, "88", 88),
        (parse.decimal, "8" * 10, None),
        (parse.netns_mode, "Y", NetnsMode.SHARED),
        (parse.netns_mode, "N", NetnsMode.EXCLUSIVE),
        (parse.netns_mode, "1", None),
        (parse.interface_name, "enp94s0f0np0", "enp94s0f0np0"),
        (parse.interface_name, "ib0.8001", "ib0.8001"),
        (parse.interface_name, "..", None),
        (parse.interface_name, "../eth0", None),
        (parse.interface_name, "eth0\0", None),
        (parse.interface_name, "a" * 16, None),
        (parse.interface_name, "", None),
    ],
)
def test_text_means_this_value(read: Callable[[str], object], text: str, value: object) -> None:
    """Each reader knows the kernel's spelling, and where users write the text, theirs."""
    assert read(text) == value


def test_natural_order_compares_numbers() -> None:
    """Numbers inside names compare as numbers, and letters as letters."""
    names = ["uverbs10", "issm1", "uverbs2", "enp3s0f1", "enp3s0f0np10", "enp3s0f0np9", ""]

    assert sorted(names, key=parse.natural) == [
        "",
        "enp3s0f0np9",
        "enp3s0f0np10",
        "enp3s0f1",
        "issm1",
        "uverbs2",
        "uverbs10",
    ]


@given(names=st.lists(st.text(max_size=12)))
def test_natural_order_takes_any_names(names: list[str]) -> None:
    """Every mixture of names can be sorted, and equal keys mean equal names."""
    backwards = list(reversed(names))

    assert sorted(backwards, key=parse.natural) == sorted(names, key=parse.natural)


@pytest.mark.parametrize("read", _READERS, ids=lambda read: read.__name__)
@given(text=st.text(max_size=40) | st.from_regex(r"[0-9a-fx:. -]{0,30}"))
def test_no_text_raises(read: Callable[[str], object], text: str) -> None:
    """Whatever the text, a reader returns a value or None."""
    read(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:8081", ("127.0.0.1", 8081)),
        ("[::1]:0", ("::1", 0)),
        ("localhost:65535", ("localhost", 65535)),
        (":8081", None),
        ("8081", None),
        ("a:65536", None),
        ("a:-1", None),
        ("", None),
    ],
)
def test_host_port(text: str, address: tuple[str, int] | None) -> None:
    """An address needs both parts; brackets of IPv6 go."""
    assert parse.host_port(text) == address
