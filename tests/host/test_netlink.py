# SPDX-License-Identifier: Apache-2.0
"""Netlink on this machine, whatever it has: interfaces are told, and what the kernel lacks is quietly unknown."""

import socket
from pathlib import Path

from rdma_plugin.core.model import NetnsMode
from rdma_plugin.host import netlink, scan


def test_links_are_those_of_this_network_namespace() -> None:
    """Every interface that the system names is there under its name."""
    links = netlink.links()

    assert set(links) == {name for _, name in socket.if_nameindex()}
    assert all(link.name == name for name, link in links.items())


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
