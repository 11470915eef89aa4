# SPDX-License-Identifier: Apache-2.0
"""What the kubelet did on one of our sockets: the proof of contact, from the first call to the end of a stream.

Written by the servicers as calls arrive, read by the registration that waits for them; all on one loop.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from enum import StrEnum
from time import monotonic


class Call(StrEnum):
    """Calls that the kubelet makes, by the name they have on the wire."""

    GET_INFO = "GetInfo"
    NOTIFY = "NotifyRegistrationStatus"
    OPTIONS = "GetDevicePluginOptions"
    LIST_AND_WATCH = "ListAndWatch"
    PREFER = "GetPreferredAllocation"
    ALLOCATE = "Allocate"
    PRE_START = "PreStartContainer"


class Session:
    """Contacts of one server, which lives as long as one registration."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        """`on_change` is called after each change, on the loop."""
        self._on_change = on_change
        self.streams = 0
        """ListAndWatch streams that are open now."""
        self.opened_at: float | None = None
        """When the first stream was opened, monotonic seconds."""
        self.ended_at: float | None = None
        """When the kubelet's stream ended (see `stream_ended`), monotonic seconds."""
        self.asked_at: float | None = None
        """When GetInfo was called last, monotonic seconds."""
        self.accepted_at: float | None = None
        """When the kubelet accepted the registration, monotonic seconds."""
        self.refusal: str | None = None
        """The kubelet's own words when it refused."""
        self.allocations = 0
        """Allocate calls that got an answer."""
        self.refusals = 0
        """Allocate calls that got an error."""
        self.last_call: Call | None = None
        self.last_call_at: str | None = None
        """ISO 8601, UTC."""

    def called(self, call: Call) -> None:
        """Note a call of the kubelet."""
        self.last_call = call
        self.last_call_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        if call is Call.GET_INFO:
            self.asked_at = monotonic()
        self._on_change()

    def stream_opened(self) -> bool:
        """Note a new ListAndWatch stream; return whether it is the first."""
        self.streams += 1
        is_first = self.opened_at is None
        self.opened_at = self.opened_at or monotonic()
        self.called(Call.LIST_AND_WATCH)
        return is_first

    def stream_ended(self, *, is_first: bool) -> None:
        """Note the end of a ListAndWatch stream, whoever ended it.

        The first stream is the kubelet's: it dials within milliseconds after a socket with a name that nobody knows was
        made. A stray reader that comes later and goes mustn't cost the registration; nor may one hide that nobody is left.
        """
        self.streams -= 1
        if is_first or not self.streams:
            self.ended_at = self.ended_at or monotonic()
        self._on_change()

    def accepted(self) -> None:
        """Note that the kubelet accepted the registration."""
        self.accepted_at = monotonic()
        self._on_change()

    def refused(self, text: str) -> None:
        """Note that the kubelet refused the registration, and why."""
        self.refusal = text
        self._on_change()

    @property
    def lived_s(self) -> float:
        """How long the first stream lasted, seconds; 0 if there was none."""
        if self.opened_at is None:
            return 0.0
        return (self.ended_at or monotonic()) - self.opened_at
