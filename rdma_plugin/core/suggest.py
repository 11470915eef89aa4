# SPDX-License-Identifier: Apache-2.0
"""A node's inventory into a configuration that a person would start from.

One resource for each kind of fabric device (driver and link layer), by selectors that hold on every node of the same
make: drivers and link types, not the names of one node. The document is checked against the inventory: each resource gets
exactly the devices that it was made for, and what would slip in is left out by `exclude`.

Not suggested: NVSwitch management functions, devices without a uverbs node, VFs whose physical function is on the node
(they are made to be handed out one by one), software devices where there is hardware, and kinds of which no port is
active while another kind has one.
"""

import re
from collections import defaultdict
from typing import Any

from rdma_plugin.core import parse, selectors
from rdma_plugin.core.config import Resource
from rdma_plugin.core.model import CharKind, Inventory, LinkType, RdmaDevice

ROCE_SLOTS = 63
"""A RoCE port has 128 GIDs and each address that a pod brings takes two (RoCE v1 and v2): 63 pods and the host (C1)."""
INFINIBAND_SLOTS = 200
"""InfiniBand pods share the port's GID, so nothing runs out; the number only bounds how many pods a node takes."""

_STEMS = {LinkType.INFINIBAND: "hca_ib", LinkType.ETHER: "hca_roce", LinkType.UNKNOWN: "hca"}
_PLAIN = re.compile(r"[A-Za-z0-9_.:-]{1,50}")
_Kind = tuple[LinkType, str]
"""Link layer and driver; the driver is empty where it can't be told."""


def suggest(inventory: Inventory) -> dict[str, object]:
    """Return a configuration document; its `configList` is empty (and so no valid configuration) without devices."""
    kinds: defaultdict[_Kind, list[RdmaDevice]] = defaultdict(list)
    for device in _worthwhile(inventory.devices):
        kinds[_kind(device)].append(device)
    active = {kind: devices for kind, devices in kinds.items() if any(_is_active(device) for device in devices)}
    chosen = sorted((active or kinds).items(), key=lambda item: (list(_STEMS).index(item[0][0]), item[0][1]))
    links = [link for (link, _), _ in chosen]
    return {
        "configList": [
            _resource(kind, devices, inventory.devices, is_only_one=links.count(kind[0]) == 1)
            for kind, devices in chosen
        ]
    }


def _worthwhile(devices: tuple[RdmaDevice, ...]) -> list[RdmaDevice]:
    usable = [
        device
        for device in devices
        if not device.is_management and _has_uverbs(device) and _PLAIN.fullmatch(device.name)
    ]
    real = [device for device in usable if not device.is_virtual and not device.software]
    return [device for device in real if not (device.pci and device.pci.pf)] or real or usable


def _has_uverbs(device: RdmaDevice) -> bool:
    # without one a device is in no pool, so it need not be excluded either
    return any(node.kind is CharKind.UVERBS for node in device.char_nodes)


def _kind(device: RdmaDevice) -> _Kind:
    links = device.link_types
    link = next((link for link in (LinkType.INFINIBAND, LinkType.ETHER) if link in links), LinkType.UNKNOWN)
    driver = device.software or device.driver or ""
    return link, driver if _PLAIN.fullmatch(driver) else ""


def _is_active(device: RdmaDevice) -> bool:
    return any(port.is_active for port in device.ports)


def _resource(
    kind: _Kind, devices: list[RdmaDevice], everything: tuple[RdmaDevice, ...], *, is_only_one: bool
) -> dict[str, Any]:
    link, driver = kind
    selected: dict[str, list[str]] = {"drivers": [driver]} if driver else {"rdmaDevices": _names(devices)}
    if link is not LinkType.UNKNOWN:
        selected["linkTypes"] = [link.value]
    document: dict[str, Any] = {
        "resourceName": _resource_name(link, "" if is_only_one and link is not LinkType.UNKNOWN else driver or "other"),
        "rdmaHcaMax": INFINIBAND_SLOTS if link is LinkType.INFINIBAND else ROCE_SLOTS,
        "selectors": selected,
    }
    others = [device for device in everything if device not in devices and not device.is_sub_device]
    excluded = _apart(devices, [device for device in others if _takes(document, device)])
    return {**document, "exclude": excluded} if excluded else document


def _resource_name(link: LinkType, suffix: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", f"{_STEMS[link]}_{suffix}").strip("_")


def _takes(document: dict[str, Any], device: RdmaDevice) -> bool:
    return selectors.match(Resource.model_validate(document), device).selected


def _apart(wanted: list[RdmaDevice], unwanted: list[RdmaDevice]) -> dict[str, list[str]]:
    """Return the selectors that tell the unwanted devices from the wanted: device ids where they do, else names."""
    ids = {None, *map(_device_id, wanted)}
    excluded = {
        "deviceIDs": sorted({found for device in unwanted if (found := _device_id(device)) and found not in ids}),
        "rdmaDevices": _names([device for device in unwanted if _device_id(device) in ids]),
    }
    return {key: names for key, names in excluded.items() if names}


def _device_id(device: RdmaDevice) -> str | None:
    return device.pci.device if device.pci else None


def _names(devices: list[RdmaDevice]) -> list[str]:
    return sorted((device.name for device in devices if _PLAIN.fullmatch(device.name)), key=parse.natural)
