# SPDX-License-Identifier: Apache-2.0
"""`Lane`: one resource on its way from registration to registration; what the registrar remembers between attempts."""

import asyncio
import random
from dataclasses import dataclass, replace

from rdma_plugin.core.pool import Pool
from rdma_plugin.kubelet.paths import SocketId
from rdma_plugin.kubelet.registration import SHORT_LIFE_S, End, Ending, Registration, Way
from rdma_plugin.kubelet.session import Call
from rdma_plugin.latest import Latest

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
SHORT_LIVES = 3
"""Streams shorter than `SHORT_LIFE_S` in a row before there is a pause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """How a resource stands with the kubelet at one moment."""

    way: Way | None = None
    """The way in use or being tried; None between attempts."""
    is_registered: bool = False
    """True if the kubelet accepted the registration."""
    is_current: bool = False
    """True if kubelet.sock and our socket are the ones that the registration was made with."""
    streams: int = 0
    """ListAndWatch streams that are open."""
    last_call: Call | None = None
    """What the kubelet called last, over all registrations."""
    last_call_at: str | None = None
    """ISO 8601, UTC."""
    last_error: str | None = None
    """Why the last attempt failed; None once the kubelet reads our list."""
    registrations: int = 0
    """How often the kubelet began to read our list."""
    failures: int = 0
    """How many attempts came to nothing."""
    allocations: int = 0
    """Allocate calls that got an answer."""
    refusals: int = 0
    """Allocate calls that got an error."""

    @property
    def is_ready(self) -> bool:
        """True if the kubelet reads our list by the sockets that are there."""
        return self.is_registered and self.is_current and self.streams > 0


class Lane:
    """One resource on its way from registration to registration."""

    def __init__(self, resource: str, pool: Latest[Pool]) -> None:
        """`pool` is what is promised for the resource."""
        self.resource = resource
        self.pool = pool
        self.changed = asyncio.Event()
        self.registration: Registration | None = None
        self.past = Contact()
        self.kubelet_socket: SocketId | None = None  # as the attempt saw it
        self.error: str | None = None
        self.short_lives = 0
        self.pauses = 0
        self.failures = 0

    def contact(self) -> Contact:
        """Return how the resource stands now."""
        registration = self.registration
        if registration is None:
            return replace(
                self.past,
                way=None,
                is_registered=False,
                is_current=False,
                streams=0,
                last_error=self.error,
                failures=self.failures,
            )
        session = registration.session
        return Contact(
            way=registration.plan.way,
            is_registered=session.accepted_at is not None and session.ended_at is None,
            is_current=registration.is_current,
            streams=session.streams,
            last_call=session.last_call or self.past.last_call,
            last_call_at=session.last_call_at or self.past.last_call_at,
            last_error=None if session.streams else self.error,
            registrations=self.past.registrations + (session.opened_at is not None),
            failures=self.failures,
            allocations=self.past.allocations + session.allocations,
            refusals=self.past.refusals + session.refusals,
        )

    def count(self, ending: Ending) -> None:
        """Take note of how an attempt ended."""
        self.failures += ending.end is End.FAILED
        if ending.end is End.ENDED and ending.lived_s < SHORT_LIFE_S:
            self.short_lives += 1
        elif ending.end is not End.FAILED:
            self.calm()

    def calm(self) -> None:
        """Forget earlier trouble: the kubelet is another one."""
        self.short_lives = self.pauses = 0

    @property
    def is_flapping(self) -> bool:
        """True if streams keep ending right after they began."""
        return self.short_lives >= SHORT_LIVES

    def next_pause_s(self) -> float:
        """Return how long to wait before the next attempt, seconds; longer each time."""
        most = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2.0**self.pauses)
        self.pauses = min(self.pauses + 1, 16)
        return random.uniform(most / 2, most)  # noqa: S311 - jitter: resources must not come back all at once
