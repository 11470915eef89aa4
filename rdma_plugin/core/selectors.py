# SPDX-License-Identifier: Apache-2.0
"""Does a resource take an RDMA device? Yes or no, with the first reason that a person understands.

`selectors` are joined by AND over keys and OR within a key, `exclude` by OR over everything. A device whose attribute
isn't known never matches a selector on it, and the reason says so. Decides from values alone: nothing is looked up, and
the order of entries in the file changes no answer.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import NamedTuple

from rdma_plugin.core.config import FunctionRange, Resource, Selectors
from rdma_plugin.core.model import PciFunction, RdmaDevice

_SHOWN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether one resource takes one device, and why."""

    device: str
    """The ibdev name."""
    resource: str
    """Full name, `rdma/hca_shared_devices_a`."""
    selected: bool
    reason: str
    """One sentence; up to its first `;` it is the same for all devices that are out for the same cause."""


class _Facts(NamedTuple):
    """What a device has to offer for one key; `unknown` says why it has nothing."""

    values: tuple[str, ...] = ()
    unknown: str = ""
    lead: str = "this is "
    before: str = ""
    after: str = ""

    def shown(self, values: Iterable[str]) -> str:
        return f"{self.before}{_listed(values)}{self.after}"


Entry = str | int | FunctionRange
_Fits = Callable[[Entry, str, RdmaDevice], bool]


class _Key(NamedTuple):
    name: str
    wanted: Callable[[Selectors], tuple[Entry, ...]]
    facts: Callable[[RdmaDevice], _Facts]
    fits: _Fits


class _Answer(NamedTuple):
    fits: bool
    text: str


def match(resource: Resource, device: RdmaDevice) -> Verdict:
    """Return the verdict for one device."""
    why_not = _why_not(resource, device)
    reason = why_not or f"selected: {'; '.join(answer.text for answer in _answers(resource.selectors, device))}"
    return Verdict(device=device.name, resource=resource.full_name, selected=why_not is None, reason=reason)


def _why_not(resource: Resource, device: RdmaDevice) -> str | None:
    asked = resource.selectors
    if (device.is_virtual or device.software) and not (asked.drivers or asked.rdma_devices or asked.if_names):
        kind = f"a software device ({device.software})" if device.software else "a virtual device"
        return f"is {kind}; name it with drivers, rdmaDevices or ifNames"
    for answer in _answers(asked, device):
        if not answer.fits:
            return answer.text
    if device.is_management and not resource.include_management:
        return "is an NVSwitch management function (SW_MNG in its VPD); set includeManagement to use it"
    for answer in _answers(resource.exclude, device) if resource.exclude else ():
        if answer.fits:
            return f"excluded: {answer.text}"
    return None


def _answers(selectors: Selectors, device: RdmaDevice) -> Iterator[_Answer]:
    """Yield an answer for each key that asks for anything."""
    for key in _KEYS:
        wanted = key.wanted(selectors)
        if wanted:
            yield _judge(key, wanted, device)


def _judge(key: _Key, wanted: tuple[Entry, ...], device: RdmaDevice) -> _Answer:
    facts = key.facts(device)
    for entry in wanted:
        for value in facts.values:
            if key.fits(entry, value, device):
                return _Answer(fits=True, text=f'{key.name} "{entry}" matches {facts.shown((value,))}')
    has = f"{facts.lead}{facts.shown(facts.values)}" if facts.values else facts.unknown
    return _Answer(
        fits=False, text=f"{key.name} wants {_listed(map(str, wanted), 'or')}; {has}{_slip(key, wanted, device)}"
    )


def _slip(key: _Key, wanted: tuple[Entry, ...], device: RdmaDevice) -> str:
    """Point at the likeliest mix-up of keys: an ibdev name among interface names, or the other way round."""
    if key.name == "ifNames" and device.name in wanted:
        return f" ({device.name} is its RDMA name: write it under rdmaDevices)"
    if key.name == "rdmaDevices":
        name = next((name for name in _interfaces(device).values if name in wanted), None)
        return f" ({name} is its interface: write it under ifNames)" if name else ""
    return ""


def _listed(values: Iterable[str], last: str = "and") -> str:
    names = list(values)
    if len(names) > _SHOWN:
        return f"{', '.join(names[:_SHOWN])} {last} {len(names) - _SHOWN} more"
    return f" {last} ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else ""


def _is_same(entry: Entry, value: str, _: RdmaDevice) -> bool:
    return str(entry) == value


def _is_like(entry: Entry, value: str, _: RdmaDevice) -> bool:
    return fnmatchcase(value, str(entry))


def _of_function(fits: _Fits) -> _Fits:
    """Extend a comparison of names by the function's index: `name#0-3` takes only VFs and SFs, by index."""

    def fits_both(entry: Entry, value: str, device: RdmaDevice) -> bool:
        if not isinstance(entry, FunctionRange) or not fits(entry.name, value, device):
            return False
        index = _index(device)
        return entry.indices is None or (index is not None and any(low <= index <= high for low, high in entry.indices))

    return fits_both


def _index(device: RdmaDevice) -> int | None:
    if device.auxiliary:
        return device.auxiliary.sfnum
    return device.pci.vf_index if device.pci else None


def _pci(read: Callable[[PciFunction], str | int | None], what: str) -> Callable[[RdmaDevice], _Facts]:
    """Return the facts of an attribute of the PCI function; `what` names the attribute."""

    def facts(device: RdmaDevice) -> _Facts:
        if device.pci is None:
            return _Facts(unknown="it has no PCI function")
        value = read(device.pci)
        return _Facts(unknown=f"its {what} can't be told") if value is None else _Facts((str(value),))

    return facts


def _driver(device: RdmaDevice) -> _Facts:
    # a software device of an old kernel hangs under its NIC's PCI function, whose driver isn't its own
    return _Facts((device.software,)) if device.software else _pci(lambda pci: pci.driver, "driver")(device)


def _interfaces(device: RdmaDevice) -> _Facts:
    if device.netdevs is None:
        return _Facts(unknown="its network interfaces can't be told")
    own = [net for net in device.netdevs if not net.is_representor]
    names = [net.name for net in own]
    others = [name for net in own for name in (*net.altnames, net.master) if name]
    values = tuple(dict.fromkeys(names + others))
    lead = "its interfaces are " if len(values) > 1 else "its interface is "
    return _Facts(values, unknown="it has no network interface", lead=lead)


def _link_types(device: RdmaDevice) -> _Facts:
    values = tuple(link_type.value for link_type in device.link_types)
    return _Facts(values, unknown="its link type can't be told")


def _functions(names: tuple[str, ...], device: RdmaDevice, unknown: str) -> _Facts:
    """Return the names of the physical function, told as `VF 2 of ens1f0np0`, or `ens1f0np0 itself`."""
    kind = "SF" if device.auxiliary else "VF" if device.pci and device.pci.pf else ""
    if not kind:
        return _Facts(names, unknown, after=" itself")
    index = _index(device)
    return _Facts(names, unknown, before=f"{kind} {index} of " if index is not None else f"a {kind} of ")


def _physical_interfaces(device: RdmaDevice) -> _Facts:
    return _functions(device.pf_netdevs, device, "the interface of its physical function can't be told")


def _physical_function(device: RdmaDevice) -> _Facts:
    address = (device.pci.pf or device.pci.address,) if device.pci else ()
    return _functions(address, device, "it has no PCI function")


_KEYS = (
    _Key("rdmaDevices", lambda asked: asked.rdma_devices, lambda device: _Facts((device.name,)), _is_like),
    _Key("ifNames", lambda asked: asked.if_names, _interfaces, _is_like),
    _Key(
        "vendors",
        lambda asked: asked.vendors,
        _pci(lambda pci: pci.vendor, "vendor id"),
        _is_same,
    ),
    _Key(
        "deviceIDs",
        lambda asked: asked.device_ids,
        _pci(lambda pci: pci.device, "device id"),
        _is_same,
    ),
    _Key("drivers", lambda asked: asked.drivers, _driver, _is_like),
    _Key("linkTypes", lambda asked: asked.link_types, _link_types, _is_same),
    _Key(
        "pciAddresses",
        lambda asked: asked.pci_addresses,
        _pci(lambda pci: pci.address, "address"),
        _is_same,
    ),
    _Key("pfNames", lambda asked: asked.pf_names, _physical_interfaces, _of_function(_is_like)),
    _Key("rootDevices", lambda asked: asked.root_devices, _physical_function, _of_function(_is_same)),
    _Key("numaNodes", lambda asked: asked.numa_nodes, _pci(lambda pci: pci.numa_node, "NUMA node"), _is_same),
)
"""The order in which keys are looked at, and so the one whose reason a person reads: names first."""
