# SPDX-License-Identifier: Apache-2.0
"""A YAML file of tests/nodes (format 1) into a `Node`: templates, addresses of VFs, variant, changes, numbers.

All steps up to the last work on the plain YAML document, because templates and changes may hold any part of it. A
document that can't mean what its author thinks (an unquoted address is a base-60 number in YAML 1.1, an unknown
variant, a change that names nothing) is a ValueError.
"""

import copy
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.fakes.nodes_build import Document, holders, node
from tests.fakes.nodes_format import Node

Changes = Mapping[str, Mapping[str, Any]]

_TEXT_KEYS = frozenset(
    [
        "at",
        "id",
        "sub",
        "class",
        "rev",
        "mac",
        "guid",
        "sys_guid",
        "gid",
        "lid",
        "sm_lid",
        "cap_mask",
        "pkey",
        "switch_id",
        "vf_id",
        "name",
        "fw",
    ]
)
_ADDRESS = re.compile(r"([0-9a-f]{4,}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])")
_SHORT_ADDRESS = re.compile(r"[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_HOST_BRIDGE = re.compile(r"pci([0-9a-f]{4,}):[0-9a-f]{2}")
_MODULES = ("ib_uverbs", "ib_umad", "rdma_ucm", "ib_ipoib")


def variants(path: Path) -> tuple[str, ...]:
    """Return the names of the file's variants, in its order."""
    return tuple(yaml.safe_load(path.read_text()).get("variants") or ())


def load(path: Path, variant: str | None = None, changes: Changes | None = None) -> Node:
    """Read a node file; None as variant is the file as it stands.

    `changes` has the form of a variant's `set` and comes after it, for example `{"net ibp24s0": {"name": "ibs108"}}`;
    a new name is followed everywhere but in `expect`.
    """
    document: Document = yaml.safe_load(path.read_text())
    known = document.pop("variants", None) or {}
    if variant is not None and variant not in known:
        raise ValueError(f"{path.name}: no variant {variant}, there are: {', '.join(known)}")
    _refuse_numbers({key: value for key, value in document.items() if key not in ("name", "about")}, path.name)
    templates = document.get("templates") or {}
    document["pci"] = _expand(document.get("pci") or [], templates)
    document["virtual"] = _expand(document.get("virtual") or {}, templates)
    document.setdefault("modules", list(_MODULES))
    for function in document["pci"]:
        _place(function)
    _vary(document, known[variant] if variant else {})
    for target, change in (changes or {}).items():
        _change(document, target, change)
    return node(document)


def _refuse_numbers(value: Any, where: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in _TEXT_KEYS and item is not None and not isinstance(item, str):
                raise ValueError(f"{where}/{key}: quote it, YAML reads {item!r}")
            _refuse_numbers(item, f"{where}/{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _refuse_numbers(item, f"{where}[{index}]")


def _merge(under: Any, over: Any) -> Any:
    """Merge mappings by key and lists of mappings by index; anything else is replaced."""
    if isinstance(under, dict) and isinstance(over, dict):
        return {key: _merge(under.get(key), over[key]) if key in over else under[key] for key in {**under, **over}}
    if (
        isinstance(under, list)
        and isinstance(over, list)
        and under
        and over
        and all(isinstance(item, dict) for item in under + over)
    ):
        pairs = [_merge(low, high) for low, high in zip(under, over, strict=False)]
        return pairs + copy.deepcopy((over if len(over) > len(under) else under)[len(pairs) :])
    return copy.deepcopy(over)


def _expand(value: Any, templates: Document) -> Any:
    if isinstance(value, list):
        return [_expand(item, templates) for item in value]
    if not isinstance(value, dict):
        return value
    uses = value.get("use") or []
    base: Any = {}
    for use in [uses] if isinstance(uses, str) else uses:
        base = _merge(base, _expand(templates[use], templates))
    return _merge(base, {key: _expand(item, templates) for key, item in value.items() if key != "use"})


def _place(function: Document) -> None:
    """Write `parts` and `address` of a PF and its VFs; give the VFs what they take over from the PF."""
    domain = ""
    parts = []
    for part in function.pop("at").split("/"):
        bridge = _HOST_BRIDGE.fullmatch(part)
        if bridge:
            domain = bridge.group(1)
        parts.append(f"{domain}:{part}" if domain and _SHORT_ADDRESS.fullmatch(part) else part)
    match = _ADDRESS.fullmatch(parts[-1])
    if match is None:
        raise ValueError(f"{'/'.join(parts)} doesn't end in a PCI address")
    function.update(parts=parts, address=parts[-1])
    sriov = function.get("sriov") or {}
    bus, slot, number = (int(text, 16) for text in match.groups()[1:])
    routing_id = (bus << 8 | slot << 3 | number) + sriov.get("offset", 0)
    for index, vf in enumerate(sriov.get("vfs") or []):
        vf_id = routing_id + sriov["stride"] * index
        address = f"{match.group(1)}:{vf_id >> 8:02x}:{vf_id >> 3 & 31:02x}.{vf_id & 7}"
        inherited = {key: function[key] for key in ("sub", "class", "rev", "numa", "driver") if key in function}
        own = {"parts": [*parts[:-1], address], "address": address, "pf": parts[-1], "index": index}
        merged = {"id": sriov["vf_id"], **inherited, **vf, **own}
        vf.update(merged)


def _vary(document: Document, variant: Document) -> None:
    dropped = variant.get("drop_modules", ())
    document["modules"] = [module for module in document["modules"] if module not in dropped]
    document.update({key: variant[key] for key in ("netns_mode", "kernel", "dev") if key in variant})
    document["expect"] = _merge(document["expect"], variant.get("expect") or {})
    document["expect"]["rdma"] = {
        name: device for name, device in document["expect"]["rdma"].items() if device is not None
    }
    if variant.get("drop_virtual"):
        document["virtual"] = {}
    for target, change in (variant.get("set") or {}).items():
        _change(document, target, change)


def _change(document: Document, target: str, change: Mapping[str, Any]) -> None:
    """Apply one entry of a `set`: mappings merge, lists replace, names are followed."""
    kind, name = target.split(" ", 1)
    hits = list(_targets(document, kind, name))
    if len(hits) != 1:
        raise ValueError(f"{document['name']}: {target!r} names {len(hits)} things")
    for key, value in change.items():
        hits[0][key] = _merge(hits[0].get(key), value) if isinstance(value, dict) else copy.deepcopy(value)
    if kind in ("net", "rdma"):
        _follow(document, kind, name, hits[0]["name"])


def _targets(document: Document, kind: str, name: str) -> Iterator[Document]:
    for holder in holders(document):
        if kind == "pci" and holder.get("address") == name:
            yield holder
        if kind in ("net", "rdma"):
            yield from (item for item in holder.get(kind) or () if item["name"] == name)
        for device in holder.get("rdma") or () if kind == "port" else ():
            ports = enumerate(device["ports"], 1)
            yield from (port for index, port in ports if f"{device['name']}/{port.get('n', index)}" == name)


def _follow(document: Document, kind: str, old: str, new: str) -> None:
    for holder in holders(document):
        for net in holder.get("net") or ():
            device, _, port = net.get("ipoib", "").partition("/")
            if kind == "rdma" and device == old:
                net["ipoib"] = f"{new}/{port or 1}"
            net.update({key: new for key in ("master", "child_of") if kind == "net" and net.get(key) == old})
        for device in holder.get("rdma") or () if kind == "net" else ():
            for item, key in ((device, "parent"), *((port, "ndev") for port in device["ports"])):
                if item.get(key) == old:
                    item[key] = new
