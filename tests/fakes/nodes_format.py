# SPDX-License-Identifier: Apache-2.0
"""A described server as values: what `nodes_load` makes of a YAML file and `nodes_layout` lays out.

Field names are the keys of the format, so an unknown key in a file is a TypeError. Comments at the fields say only
what the format adds to the kernel's own words. Numbers marked auto in a file are settled here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

HOST = "host"
"""The `netns` of everything that the host itself sees."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NetSpec:
    """A network interface."""

    name: str
    mac: str | None = None
    type: int = 1
    """ARPHRD number: 1 Ethernet, 32 InfiniBand, 772 loopback."""
    ipoib: str | None = None
    """`mlx5_0/1`: the InfiniBand port below an IPoIB interface; gives type, address, dev_port and dev_id."""
    child_of: str | None = None
    """The IPoIB interface of which this is a child with another `pkey`."""
    pkey: str | None = None
    state: str = "up"
    mtu: int = 1500
    speed: int | None = None
    dev_port: int = 0
    dev_id: int = 0
    port_name: str | None = None
    switch_id: str | None = None
    master: str | None = None
    bond: bool = False
    netns: str = HOST
    files: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class GidSpec:
    """One filled slot of a GID table."""

    gid: str
    type: Literal["ib", "v1", "v2"]
    ndev: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PortSpec:
    """A port of an RDMA device."""

    n: int
    link: Literal["IB", "Ethernet", "Unknown"]
    state: Literal["active", "down", "init", "armed"]
    rate: str
    phys: str | None = None
    lid: str = "0x0"
    sm_lid: str = "0x0"
    cap_mask: str | None = None
    guid: str | None = None
    """None: the device's."""
    ndev: str | None = None
    """Interface that `gid_attrs/ndevs` prints; its address gives the GIDs."""
    mac: str | None = None
    """Instead of the address of `ndev`, where that lives in another namespace."""
    v1: bool = True
    """False: RoCE v2 only."""
    ip4: tuple[str, ...] = ()
    gids: tuple[GidSpec, ...] | None = None
    """None: derived from link, guid and ndev."""
    gid_table: int = 8
    pkeys: tuple[str, ...] = ("0xffff",)
    umad: int | None = None
    issm: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaSpec:
    """An RDMA device; files whose field is None aren't made."""

    name: str
    guid: str
    ports: tuple[PortSpec, ...]
    sys_guid: str | None = None
    """None: the same as `guid`."""
    node_type: Literal["CA", "RNIC", "unspecified"] = "CA"
    fw: str = ""
    desc: str = ""
    hca: str | None = None
    board: str | None = None
    hw_rev: str | None = None
    parent: str | None = None
    abi: int = 1
    uverbs: int | None = None
    netns: str = HOST


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Anything that RDMA devices and interfaces can hang under; by itself, `/sys/devices/virtual`."""

    net: tuple[NetSpec, ...] = ()
    rdma: tuple[RdmaSpec, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AuxSpec(Holder):
    """An auxiliary device inside a PCI function."""

    name: str
    sfnum: int | None = None
    driver: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SriovSpec:
    """SR-IOV capability of a PF; its VFs are functions of their own."""

    total: int
    offset: int
    stride: int
    vf_id: str
    vf_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionSpec(Holder):
    """A PCI function, PF or VF."""

    address: str
    parts: tuple[str, ...]
    """Path below /sys/devices, the address last."""
    id: str
    class_code: str
    sub: str = "0000:0000"
    rev: str = "0x00"
    driver: str | None = None
    numa: int | None = None
    """None: as `Node.numa` says for the host bridge."""
    acpi_index: int | None = None
    iommu_group: int | None = None
    vpd: str | None = None
    files: Mapping[str, Any] = field(default_factory=dict)
    aux: tuple[AuxSpec, ...] = ()
    sriov: SriovSpec | None = None
    pf: str | None = None
    """Address of the PF; None unless this is a VF."""
    index: int | None = None
    """N of the PF's virtfnN; None unless this is a VF."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A whole server."""

    name: str
    functions: tuple[FunctionSpec, ...]
    """Each PF is followed by its VFs."""
    virtual: Holder
    modules: frozenset[str]
    rdma_cm: int
    """Minor of the misc device; its major is 10."""
    netns_mode: Literal["shared", "exclusive"]
    numa: Mapping[str, int]
    bridges: Mapping[str, Mapping[str, Any]]
    """Fields of implied bridges: `root`, `switch` or an address."""
    dev: Mapping[str, list[str]]
    """Changes to /dev/infiniband: `missing` nodes, `dirs`, and plain `files`, also in place of a node."""
    expect: Mapping[str, Any]
    """What discovery must return, as the file and the variant state it."""

    def holders(self) -> tuple[Holder, ...]:
        """Return everything that can hold devices, in the order of the file."""
        found: list[Holder] = []
        for function in self.functions:
            found += [function, *function.aux]
        return (*found, self.virtual)
