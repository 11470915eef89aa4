# SPDX-License-Identifier: Apache-2.0
"""Directory events as wake-ups: inotify by watchdog; nothing here decides anything.

A directory that is made anew blinds inotify (K7), so whoever is woken also looks by itself now and then.
"""

import asyncio
import errno
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from watchdog.events import FileSystemEvent, FileSystemEventHandler
from watchdog.observers import Observer

logger = logging.getLogger(__name__)
_CHANGES = ("created", "deleted", "moved", "modified")


class _Waker(FileSystemEventHandler):
    def __init__(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        self._loop = loop
        self._wake = wake

    def on_any_event(self, event: FileSystemEvent) -> None:
        if event.event_type in _CHANGES and not self._loop.is_closed():
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
            observer.schedule(waker, str(path), recursive=False)
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
