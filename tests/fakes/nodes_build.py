# SPDX-License-Identifier: Apache-2.0
"""The last step of reading a node file: a document without templates and variants into frozen specs.

Here the numbers are given out: a uverbs, umad or issm that a file leaves `auto` takes the next free number in the
order of the file, as the kernel would.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

from tests.fakes.nodes_format import (
    AuxSpec,
    FunctionSpec,
    GidSpec,
    Holder,
    NetSpec,
    Node,
    PortSpec,
    RdmaSpec,
    SriovSpec,
)

Document = dict[str, Any]
Numbers = Iterator[int]

_MAD = {"IB": "ib", "Ethernet": "roce", "Unknown": "none"}


class _Numbering:
    """The free uverbs and umad numbers, and the kernel's rule for issm."""

    def __init__(self, document: Document) -> None:
        devices = [device for holder in holders(document) for device in holder.get("rdma") or ()]
        uverbs = {device.get("uverbs") for device in devices}
        umads = {port.get("umad") for device in devices for port in device["ports"]}
        self.uverbs: Numbers = (number for number in count() if number not in uverbs)
        self.umads: Numbers = (number for number in count() if number not in umads)
        self.issm_rule: str = (document.get("kernel") or {}).get("issm", "smi-only")

    def issm(self, mad: str) -> bool:
        """Up to kernel 6.10 each umad has an issm; later only an InfiniBand port has one."""
        return self.issm_rule == "all" or (self.issm_rule == "smi-only" and mad == "ib")


def node(document: Document) -> Node:
    """Build the values; the document's numbers that are `auto` are given out in its order."""
    numbering = _Numbering(document)
    dev = document.get("dev") or {}
    return Node(
        name=document["name"],
        functions=tuple(_function(function, numbering) for function in _functions(document)),
        virtual=Holder(**_held(document["virtual"], numbering)),
        modules=frozenset(document["modules"]),
        rdma_cm=document.get("rdma_cm", 122),
        netns_mode=document.get("netns_mode", "shared"),
        numa=document.get("numa") or {},
        bridges=document.get("bridges") or {},
        dev={key: dev.get(key) or [] for key in ("missing", "dirs", "files")},
        expect=document["expect"],
    )


def holders(document: Document) -> Iterator[Document]:
    """Yield everything that may have `net` and `rdma`, in the order of the file."""
    for function in _functions(document):
        yield function
        yield from function.get("aux") or ()
    yield document["virtual"]


def _functions(document: Document) -> Iterator[Document]:
    for function in document["pci"]:
        yield function
        yield from (function.get("sriov") or {}).get("vfs") or ()


def _function(entry: Document, numbering: _Numbering) -> FunctionSpec:
    keys = {key: value for key, value in entry.items() if key not in ("class", "net", "rdma", "aux", "sriov", "parts")}
    held = _held(entry, numbering)
    sriov = entry.get("sriov")
    return FunctionSpec(
        **keys,
        **held,
        parts=tuple(entry["parts"]),
        class_code=entry["class"].ljust(6, "0"),
        aux=tuple(AuxSpec(**{**aux, **_held(aux, numbering)}) for aux in entry.get("aux") or ()),
        sriov=sriov
        and SriovSpec(**{key: sriov[key] for key in sriov if key != "vfs"}, vf_count=len(sriov.get("vfs") or ())),
    )


def _held(entry: Document, numbering: _Numbering) -> dict[str, Any]:
    return {
        "rdma": tuple(_device(device, numbering) for device in entry.get("rdma") or ()),
        "net": tuple(_net(net) for net in entry.get("net") or ()),
    }


def _net(net: Document) -> NetSpec:
    fields: Document = {"type": 32 if net.get("ipoib") or net.get("child_of") else 1}
    return NetSpec(**(fields | net))


def _device(device: Document, numbering: _Numbering) -> RdmaSpec:
    uverbs = device.get("uverbs", "auto")
    number = next(numbering.uverbs) if uverbs == "auto" else uverbs
    ports = tuple(_port({"n": index, **port}, numbering) for index, port in enumerate(device["ports"], 1))
    return RdmaSpec(**{**device, "uverbs": number, "ports": ports})


def _port(port: Document, numbering: _Numbering) -> PortSpec:
    fields = dict(port)
    mad = fields.pop("mad", None) or _MAD[port["link"]]
    umad = port.get("umad", "auto") if mad != "none" else None
    fields["umad"] = next(numbering.umads) if umad == "auto" else umad
    issm = port.get("issm", "auto")
    fields["issm"] = fields["umad"] is not None and numbering.issm(mad) if issm == "auto" else issm
    if port.get("gids") is not None:
        fields["gids"] = tuple(GidSpec(**gid) for gid in port["gids"])
    for key in ("ip4", "pkeys"):
        if key in port:
            fields[key] = tuple(port[key])
    return PortSpec(**fields)
