# SPDX-License-Identifier: Apache-2.0
"""What only netlink can tell about this host: alternative names, kinds of links, a siw device's interface, netns mode.

Each function opens a socket, asks once and closes it. None of them raises: where the kernel has no RDMA netlink, refuses
or doesn't answer in time, the result is empty or None, which means unknown. For root `/` only; nothing is changed.
The functions block: worker thread only.
"""

import os
import socket
from collections.abc import Iterable, Mapping

from rdma_plugin.core import nlmsg
from rdma_plugin.core.model import NetnsMode
from rdma_plugin.core.nlmsg import Link

_NETLINK_RDMA = 20
"""include/uapi/linux/netlink.h; the socket module has no name for it."""
_ANSWER_TIMEOUT_S = 2.0
_RECEIVE_BYTES = 1 << 16
"""Above the 32 KiB that the kernel fills at most in a dump (netlink_dump)."""


def links() -> Mapping[str, Link]:
    """Return all interfaces of this network namespace by name."""
    bodies = _ask(socket.NETLINK_ROUTE, nlmsg.link_request())
    found = (nlmsg.link(body) for body in bodies)
    return {link.name: link for link in found if link}


def port_netdevs(ibdevs: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the interfaces of these RDMA devices' ports; a device that netlink doesn't know is left out.

    An interface in another network namespace isn't told, so a device may have none.
    """
    wanted = frozenset(ibdevs)
    bodies = _ask(_NETLINK_RDMA, nlmsg.request(nlmsg.RDMA_GET, nlmsg.DUMP)) if wanted else ()
    indices = dict(device for body in bodies if (device := nlmsg.device(body)))
    netdevs = {}
    for ibdev in sorted(wanted & indices.keys()):
        ports = _ask(_NETLINK_RDMA, nlmsg.port_request(indices[ibdev]))
        if ports:
            netdevs[ibdev] = tuple(name for body in ports if (name := nlmsg.port_netdev(body)))
    return netdevs


def netns_mode() -> NetnsMode | None:
    """Return how RDMA devices and network namespaces go together; None where it can't be told."""
    bodies = _ask(_NETLINK_RDMA, nlmsg.request(nlmsg.RDMA_SYS_GET, nlmsg.ACKNOWLEDGE))
    return nlmsg.netns_mode(bodies[0]) if bodies else None


def _ask(protocol: int, request: bytes) -> tuple[bytes, ...]:
    """Return the bodies of the answer; nothing at all if it isn't whole."""
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol) as connection:
            connection.settimeout(_ANSWER_TIMEOUT_S)
            connection.bind((0, 0))
            connection.send(request)
            return _answer(connection)
    except OSError:
        return ()


def _answer(connection: socket.socket) -> tuple[bytes, ...]:
    bodies: list[bytes] = []
    while True:
        for message in nlmsg.messages(connection.recv(_RECEIVE_BYTES)):
            end = nlmsg.end(message)
            if end:
                raise OSError(end, os.strerror(end))
            if end == 0:
                return tuple(bodies)
            bodies.append(message.body)
