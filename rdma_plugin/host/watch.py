# SPDX-License-Identifier: Apache-2.0
"""Events as wake-ups: directories by inotify, devices by uevents, links by netlink; nothing here decides anything.

Events may be lost or unavailable (a directory that is made anew blinds inotify, K7; uevents need the host's network
namespace), so whoever is woken also looks by itself now and then.
"""

import asyncio
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from watchdog.events import (
    DirCreatedEvent,
    DirDeletedEvent,
    DirModifiedEvent,
    DirMovedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer

logger = logging.getLogger(__name__)
_CHANGES: list[type[FileSystemEvent]] = [
    *(DirCreatedEvent, DirDeletedEvent, DirMovedEvent, DirModifiedEvent),
    *(FileCreatedEvent, FileDeletedEvent, FileMovedEvent, FileModifiedEvent),
]
"""Not what an `ls` or our own look each second makes: opened and closed."""
_SUBSYSTEMS = ("infiniband", "infiniband_verbs", "infiniband_mad", "misc", "net")
"""misc is for rdma_cm. A driver's own events (pci, module) come before what they lead to, which is in these."""
_RTMGRP_LINK = 1
"""include/uapi/linux/rtnetlink.h."""
_MESSAGE_BYTES = 8192
_DRAIN_AT_MOST = 256
"""Messages in one go: a storm must not keep the loop from answering the kubelet."""


class _Waker(FileSystemEventHandler):
    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake

    def on_any_event(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - that something changed is all
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake)


@contextmanager
def directories(paths: Iterable[Path], wake: Callable[[], None]) -> Iterator[None]:
    """Call `wake` on the running loop whenever an entry of one of the directories comes, goes or changes.

    A directory that can't be watched is said once and left out: the look by timer still covers it.
    """
    observer = Observer()
    observer.start()
    waker = _Waker(asyncio.get_running_loop(), wake)
    for path in dict.fromkeys(paths):
        try:
            observer.schedule(waker, str(path), recursive=False, event_filter=_CHANGES)
        except OSError as err:
            _say(path, err)
    try:
        yield
    finally:
        observer.stop()
        observer.join()


def _say(path: Path, err: OSError) -> None:
    fields = {"directory": str(path), "why": err.strerror or str(err)}
    if err.errno in (errno.ENOENT, errno.ENOTDIR, errno.EACCES):
        logger.info("directory can't be watched, it is looked at every second instead", extra=fields)
        return
    hint = "raise fs.inotify.max_user_instances and fs.inotify.max_user_watches"  # used up (K7)
    logger.warning("inotify failed, the directory is looked at every second instead", extra=fields | {"hint": hint})


@contextmanager
def uevents(wake: Callable[[], None]) -> Iterator[None]:
    """Call `wake` on the running loop for each kernel event of a device that matters here.

    Kernel events are heard in the network namespace of the host only (hostNetwork); where they can't be had it is said
    once, and the glance by timer (`host.glance`) covers them.
    """
    try:
        # imported here: pyudev looks for libudev by running ldconfig, which only `run` needs
        import pyudev  # noqa: PLC0415 - see above

        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        for subsystem in _SUBSYSTEMS:
            monitor.filter_by(subsystem)
        monitor.start()
    except (ImportError, OSError) as err:
        logger.warning(
            "kernel events can't be heard, the node is glanced at every two seconds instead", extra={"why": str(err)}
        )
        yield
        return
    with _reading(monitor.fileno(), wake):
        yield


@contextmanager
def link_events(wake: Callable[[], None]) -> Iterator[None]:
    """Call `wake` on the running loop when a network interface changes: ports change their state without a uevent.

    A bare socket, because nothing is read from the messages: pyroute2 would decode each one.
    """
    try:
        link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.NETLINK_ROUTE)
        link.bind((0, _RTMGRP_LINK))
    except OSError as err:
        logger.warning(
            "link events can't be heard, ports are glanced at every two seconds instead", extra={"why": str(err)}
        )
        yield
        return
    with link, _reading(link.fileno(), wake):
        yield


@contextmanager
def _reading(fileno: int, wake: Callable[[], None]) -> Iterator[None]:
    """Empty a socket whenever something arrives; the events themselves say nothing that the scan doesn't find."""

    def drain() -> None:
        wake()
        for _ in range(_DRAIN_AT_MOST):
            try:
                os.read(fileno, _MESSAGE_BYTES)
            except BlockingIOError:
                return
            except OSError as err:  # ENOBUFS: events were lost, and the wake-up is all that they were for
                logger.debug("events were lost", extra={"why": str(err)})

    loop = asyncio.get_running_loop()
    os.set_blocking(fileno, False)
    loop.add_reader(fileno, drain)
    try:
        yield
    finally:
        loop.remove_reader(fileno)
