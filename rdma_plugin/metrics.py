# SPDX-License-Identifier: Apache-2.0
"""A `Status` as Prometheus text. Every series of a resource is there from the start, at zero.

Names follow Prometheus' conventions: base units, `_total` for counters, one meaning for a label throughout.
"""

from collections.abc import Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from rdma_plugin.core.explain import all_problems
from rdma_plugin.core.status import Status

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def text(status: Status) -> bytes:
    """Return the exposition of a status."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_StatusCollector(status))
    return generate_latest(registry)


class _StatusCollector(Collector):
    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("rdma_plugin_build", "The program.", {"version": self._status.version})
        yield from _process(self._status)
        yield from _promises(self._status)
        yield from _kubelet(self._status)


def _process(status: Status) -> Iterator[Metric]:
    yield _gauge("config_valid", "1 if the configuration file as it is now is in use.", status.config_fault is None)
    yield _gauge("host_readable", "1 if the last look at the host succeeded.", status.host_fault is None)
    yield _gauge("scan_duration_seconds", "How long the last look at the host took.", status.scan_s)
    yield _outcomes("scans", "Looks at the host.", status.scans, status.scan_failures)
    yield _outcomes("config_reloads", "Changes of the configuration file.", status.reloads, status.reload_failures)


def _promises(status: Status) -> Iterator[Metric]:
    slots = _gauge("slots", "Slots that are offered.", labels=("resource", "health"))
    members = _gauge("resource_devices", "HCAs behind a resource.", labels=("resource", "health"))
    ports = _gauge("port_active", "1 if the port is active.", labels=("device", "port"))
    selected = _gauge("device_selected", "1 if the resource uses the HCA.", labels=("device", "resource"))
    view = status.view
    for pool in view.pools if view else ():
        healthy = sum(member.is_healthy for member in pool.members)
        slots.add_metric((pool.resource, "healthy"), pool.healthy)
        slots.add_metric((pool.resource, "unhealthy"), len(pool.slots) - pool.healthy)
        members.add_metric((pool.resource, "healthy"), healthy)
        members.add_metric((pool.resource, "unhealthy"), len(pool.members) - healthy)
        for verdict in pool.verdicts:
            selected.add_metric((verdict.device, pool.resource), verdict.selected)
    for device in view.inventory.devices if view else ():
        for port in device.ports:
            ports.add_metric((device.name, str(port.number)), port.is_active)
    problems = len(all_problems(view.inventory, view.pools)) if view else 0
    yield from (slots, members, selected, ports)
    yield _gauge("problems", "Problems that `rdma-plugin explain` lists.", problems)


def _kubelet(status: Status) -> Iterator[Metric]:
    registered = _gauge("registered", "1 if the kubelet accepted the registration.", labels=("resource",))
    ready = _gauge("ready", "1 if the kubelet reads the list by the sockets that are there.", labels=("resource",))
    streams = _gauge("streams", "Open ListAndWatch streams.", labels=("resource",))
    registrations = _counter("registrations", "Attempts to register.", ("resource", "outcome"))
    allocations = _counter("allocations", "Allocate calls.", ("resource", "outcome"))
    for link in status.links:
        registered.add_metric((link.resource,), link.is_registered)
        ready.add_metric((link.resource,), link.is_ready)
        streams.add_metric((link.resource,), link.streams)
        registrations.add_metric((link.resource, "success"), link.registrations)
        registrations.add_metric((link.resource, "failure"), link.failures)
        allocations.add_metric((link.resource, "success"), link.allocations)
        allocations.add_metric((link.resource, "failure"), link.refusals)
    yield from (registered, ready, streams, registrations, allocations)


def _gauge(name: str, about: str, value: float | None = None, labels: tuple[str, ...] = ()) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"rdma_plugin_{name}", about, value=value, labels=labels or None)


def _counter(name: str, about: str, labels: tuple[str, ...]) -> CounterMetricFamily:
    return CounterMetricFamily(f"rdma_plugin_{name}", about, labels=labels)


def _outcomes(name: str, about: str, successes: int, failures: int) -> CounterMetricFamily:
    family = _counter(name, about, ("outcome",))
    family.add_metric(("success",), successes)
    family.add_metric(("failure",), failures)
    return family
