# SPDX-License-Identifier: Apache-2.0
"""What only netlink can tell about this host: alternative names, kinds of links, a siw device's interface, netns mode.

pyroute2 speaks netlink; it has no RDMA module, so the attributes of RDMA netlink are named here. Each question opens a
socket, asks once and closes it, in an event loop of its own: only pyroute2's asynchronous half takes a deadline. None
raises: where the kernel has no RDMA netlink, refuses or doesn't answer in time, the result is empty or None, which means
unknown. For root `/` only; nothing is changed. The functions block: worker thread only.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import ModuleType
from typing import Any, TypeVar

from rdma_plugin.core.model import NetnsMode

T = TypeVar("T")
Question = Callable[[ModuleType], Coroutine[Any, Any, T]]
"""Takes pyroute2."""
logger = logging.getLogger(__name__)

ANSWER_DEADLINE_S = 2.0
_NETLINK_RDMA = 20
"""include/uapi/linux/netlink.h; neither socket nor pyroute2 has a name for it."""
_GET, _PORT_GET, _SYS_GET = (5 << 10 | command for command in (1, 5, 6))
"""RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, command) of rdma/rdma_netlink.h; answers have the type of their request."""
_ATTRIBUTES = (
    (1, "DEV_INDEX", "uint32"),
    (2, "DEV_NAME", "asciiz"),
    (51, "NDEV_NAME", "asciiz"),
    (66, "NETNS_MODE", "uint8"),
)
"""enum rdma_nldev_attr."""
_MODES = {0: NetnsMode.EXCLUSIVE, 1: NetnsMode.SHARED}
_SKIP_STATISTICS = 0x8
"""RTEXT_FILTER_SKIP_STATS: a quarter of a link message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What route netlink says about an interface beyond sysfs."""

    name: str
    altnames: tuple[str, ...] = ()
    """Sorted."""
    kind: str | None = None
    """`bond`, `team`, `bridge`, …; None for hardware."""


def links() -> Mapping[str, Link]:
    """Return all interfaces of this network namespace by name."""
    return ask(_links) or {}


def port_netdevs(ibdevs: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Return the interfaces of these RDMA devices' ports; a device that netlink doesn't know is left out.

    An interface in another network namespace isn't told, so a device may have none.
    """
    wanted = frozenset(ibdevs)
    indices = ask(_device_indices) if wanted else None
    answers = {ibdev: ask(partial(_port_netdevs, index)) for ibdev, index in (indices or {}).items() if ibdev in wanted}
    return {ibdev: netdevs for ibdev, netdevs in sorted(answers.items()) if netdevs is not None}


def netns_mode() -> NetnsMode | None:
    """Return how RDMA devices and network namespaces go together; None where it can't be told, as before Linux 5.2."""
    return ask(_netns_mode)


def prepare() -> None:
    """Import what the questions need: 0.2 s of a fast machine that the first scan with a device needn't wait for."""
    import pyroute2  # noqa: F401, PLC0415 - only `run` comes here


def ask(question: Question[T], deadline_s: float = ANSWER_DEADLINE_S) -> T | None:
    """Return the answer; None, with the reason at level debug, if there is none in time or it isn't whole."""

    async def in_time() -> T:
        async with asyncio.timeout(deadline_s):
            return await question(pyroute2)

    try:
        import pyroute2  # noqa: PLC0415 - 8 MiB and 0.2 s, only where there is something to ask, and off the clock

        return asyncio.run(in_time())
    except Exception as error:  # noqa: BLE001 - whatever the kernel or pyroute2 does, the scan goes on without it
        logger.debug("netlink gave no answer", extra={"why": f"{type(error).__name__}: {error}"})
        return None


async def _links(pyroute2: ModuleType) -> dict[str, Link]:
    async with pyroute2.AsyncIPRoute() as route:
        found = [link(message) async for message in await route.link("dump", ext_mask=_SKIP_STATISTICS)]
    return {one.name: one for one in found if one}


def link(message: Mapping[Any, Any]) -> Link | None:
    """Read one of pyroute2's `ifinfmsg`; None if its name isn't text."""
    name, properties = message.get("ifname"), message.get("prop_list")
    altnames = properties.get_attrs("IFLA_ALT_IFNAME") if properties else ()
    if not isinstance(name, str):
        return None
    return Link(
        name=name,
        altnames=tuple(sorted(altname for altname in altnames if isinstance(altname, str))),
        kind=message.get(("linkinfo", "kind")),
    )


async def _device_indices(pyroute2: ModuleType) -> dict[str, int]:
    return {message.get("dev_name"): message.get("dev_index") for message in await _rdma(pyroute2, _GET)}


async def _port_netdevs(index: int, pyroute2: ModuleType) -> tuple[str, ...] | None:
    """Return None if no port is told."""
    ports = await _rdma(pyroute2, _PORT_GET, dev_index=index)
    return tuple(name for port in ports if isinstance(name := port.get("ndev_name"), str)) if ports else None


async def _netns_mode(pyroute2: ModuleType) -> NetnsMode | None:
    (answer,) = await _rdma(pyroute2, _SYS_GET)
    return _MODES.get(answer.get("netns_mode"))


async def _rdma(pyroute2: ModuleType, command: int, dev_index: int | None = None) -> list[Any]:
    netlink = pyroute2.netlink
    request = nldev(netlink.nlmsg)()
    request["attrs"] = [] if dev_index is None else [("DEV_INDEX", dev_index)]
    flags = netlink.NLM_F_REQUEST if command == _SYS_GET else netlink.NLM_F_REQUEST | netlink.NLM_F_DUMP
    async with netlink.nlsocket.AsyncNetlinkSocket(family=_NETLINK_RDMA) as connection:
        connection.register_policy(command, type(request))
        return [message async for message in await connection.nlm_request(request, command, flags)]


@cache
def nldev(nlmsg: type[Any]) -> type[Any]:
    """Return the class of RDMA netlink's messages, made from pyroute2's class of any netlink message."""
    return type("nldev", (nlmsg,), {"nla_map": _ATTRIBUTES})
