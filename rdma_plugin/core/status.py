# SPDX-License-Identifier: Apache-2.0
"""How the running plugin stands, as one value: what it promises, how the kubelet stands to it, what went wrong.

/metrics, /readyz and /debug/status are read from it; nothing else counts or keeps state for them.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from rdma_plugin.core import explain
from rdma_plugin.core.changes import View
from rdma_plugin.core.explain import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """How one resource stands with the kubelet."""

    resource: str
    mode: str | None = None
    """`kubelet` or `watcher`; None while neither is tried."""
    is_registered: bool = False
    is_ready: bool = False
    """True if the kubelet reads our list by the sockets that are there now."""
    streams: int = 0
    """ListAndWatch streams that are open."""
    last_contact: str | None = None
    """When the kubelet called last, ISO 8601, UTC; None for never."""
    last_error: str | None = None
    """Why it isn't registered; None if it is, or isn't tried yet."""
    registrations: int = 0
    failures: int = 0
    allocations: int = 0
    refusals: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """A snapshot of the process; counters run from its start."""

    version: str
    view: View | None = None
    """None until the first scan has returned."""
    links: tuple[Link, ...] = ()
    """One for each resource, by name."""
    config_fault: str | None = None
    """Why the file as it is now isn't used; None if it is."""
    host_fault: str | None = None
    """Why the host can't be read at all; None if it can."""
    scans: int = 0
    scan_failures: int = 0
    scan_s: float = 0.0
    """How long the last scan took, seconds."""
    reloads: int = 0
    reload_failures: int = 0


def shortcomings(status: Status) -> Iterator[str]:
    """Yield what keeps the plugin from being ready; nothing if it is ready. Zero devices is ready."""
    if status.view is None:
        yield status.host_fault or "the first look at the host isn't over"
    for link in status.links:
        if not link.is_ready:
            yield f"{link.resource}: {link.last_error or 'the kubelet does not read our list yet'}"


def remarks(status: Status) -> Iterator[str]:
    """Yield what is wrong although the plugin may be ready."""
    if status.config_fault:
        yield f"configuration: the running one stays, because {status.config_fault}"
    if status.view is not None and status.host_fault:
        yield f"host: the last lists stay, because {status.host_fault}"


def document(status: Status) -> dict[str, Json]:
    """Return what `explain --json` prints, and for each resource how it stands with the kubelet."""
    view = status.view
    report = explain.report(view.inventory, view.pools) if view else {"resources": [], "verdicts": [], "problems": []}
    links = {link.resource: link for link in status.links}
    resources = report["resources"]
    assert isinstance(resources, list)  # noqa: S101 - report's own shape
    for resource in resources:
        assert isinstance(resource, dict)  # noqa: S101 - report's own shape
        link = links.get(str(resource["name"]), Link(resource=str(resource["name"])))
        resource |= {
            "registered": link.is_registered,
            "ready": link.is_ready,
            "mode": link.mode,
            "streams": link.streams,
            "lastContact": link.last_contact,
            "lastError": link.last_error,
        }
    return report | {"version": status.version, "configFault": status.config_fault, "hostFault": status.host_fault}
