# SPDX-License-Identifier: Apache-2.0
"""What the registrar says in the log: each change of state once, never each attempt.

The first failure is a warning with its reason; the same one again, or of another resource, is for debugging; the way
back is said too. A registration is said together with its proof: the kubelet's own call (K1).
"""

import logging
from pathlib import PurePath

from rdma_plugin.kubelet.session import Call

logger = logging.getLogger(__name__)


class Reports:
    """Remembers what was said about each resource."""

    def __init__(self) -> None:
        self._failures: dict[str, str] = {}
        self._fallbacks: set[str] = set()

    def offers(self, resource: str, path: str, why: str) -> None:
        """A socket waits for the plugin watcher; `why` says what is wrong with kubelet.sock, empty if it wasn't tried."""
        fields = {"resource": resource, "mode": "watcher", "path": path}
        if not why:
            logger.info("socket offered to the kubelet's plugin watcher", extra=fields)
            return
        level = logging.DEBUG if why in self._fallbacks else logging.WARNING
        self._fallbacks.add(why)
        text = "kubelet.sock doesn't answer, socket offered to the kubelet's plugin watcher"
        logger.log(level, text, extra=fields | {"why": why})

    def is_silent(self, resource: str, path: str) -> None:
        """Nobody asks at an offered socket."""
        text = "the kubelet's plugin watcher doesn't ask"
        hint = "--plugin-registry-dir must be plugins_registry below the kubelet's --root-dir, mounted read-write"
        self.fails(resource, f"{text}; {hint}", path)

    def registered(self, resource: str, way: str, proof: Call, path: str) -> None:
        """The kubelet reads our list."""
        self._failures.pop(resource, None)
        self._fallbacks.clear()
        logger.info("registered", extra={"resource": resource, "mode": way, "proof": proof.value, "path": path})

    def ended(self, resource: str, why: str, lived_s: float) -> None:
        """A registration that worked is over."""
        logger.info(
            "registration ended, registering again",
            extra={"resource": resource, "why": why, "lived_s": round(lived_s, 3)},
        )

    def fails(self, resource: str, why: str, path: str | None) -> None:
        """Registration doesn't work; `path` is cut out of the text, as it is another one each time."""
        text = why.replace(path, "our socket").replace(PurePath(path).name, "our socket") if path else why
        known = set(self._failures.values())
        if text in known:
            level = logging.DEBUG
        elif _at_fault(text) in map(_at_fault, known):  # such as kubelet.sock: first refused, then missing, then there
            level = logging.INFO
        else:
            level = logging.WARNING
        self._failures[resource] = text
        logger.log(level, "not registered with the kubelet, trying again", extra={"resource": resource, "why": why})


def _at_fault(text: str) -> str:
    """Return the object that an error's text begins with."""
    return text.partition(": ")[0]
