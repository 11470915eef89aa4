# SPDX-License-Identifier: Apache-2.0
"""What a node has: immutable values that a scan returns and every decision reads.

Unknown is `None` plus a `Problem`, never an empty string or -1. Sequences are tuples in a stable order: names by
`parse.natural` (numbers compared as numbers), everything else as documented at the field.
"""

from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something that isn't as it should be: what, why, and what to do about it."""

    what: str
    """The object and the fact, for example `mlx5_0: numa_node can't be read`."""
    why: str
    """The cause in one sentence, with the system's own words where there are any."""
    hint: str
    """What a person can do."""


class LinkType(StrEnum):
    """Link layer of a port, in iproute2's words (`ports/<n>/link_layer`)."""

    INFINIBAND = "infiniband"
    ETHER = "ether"
    UNKNOWN = "unknown"


class PortState(StrEnum):
    """State of a port (`ports/<n>/state`, enum ib_port_state of include/rdma/ib_verbs.h)."""

    NOP = "NOP"
    DOWN = "DOWN"
    INIT = "INIT"
    ARMED = "ARMED"
    ACTIVE = "ACTIVE"
    ACTIVE_DEFER = "ACTIVE_DEFER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Port:
    """One port of an RDMA device (`ports/<n>`)."""

    number: int
    """From 1."""
    state: PortState | None = None
    """None where the kernel didn't say."""
    link_type: LinkType | None = None
    """None where the kernel didn't say; UNKNOWN is what a driver such as efa says."""
    rate_gbps: float | None = None
    """`rate`, Gbit/s; None where the driver exposes none."""

    @property
    def is_active(self) -> bool:
        """True for the states in which traffic flows."""
        return self.state in (PortState.ACTIVE, PortState.ACTIVE_DEFER)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetDevice:
    """A network interface of an RDMA device."""

    name: str
    altnames: tuple[str, ...] = ()
    """Alternative names, known only through netlink; sorted."""
    master: str | None = None
    """Bond, team or bridge it belongs to; None for none."""
    is_master: bool = False
    """True for the bond or team above the device's own interface."""
    is_representor: bool = False
    """True for a switchdev representor (`phys_port_name` of a VF, SF or host PF); never matched by selectors (D4)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PciFunction:
    """The nearest PCI ancestor of an RDMA device."""

    address: str
    """`0000:18:00.0`; the domain has four or more hex digits (D10)."""
    sys_path: str
    """Real path below `sys`, e.g. `devices/pci0000:15/0000:15:01.0/…/0000:18:00.0`; gives the distance to a GPU."""
    vendor: str | None = None
    """Four lower-case hex digits without 0x, e.g. `15b3`."""
    device: str | None = None
    """Four lower-case hex digits without 0x, e.g. `1021`."""
    driver: str | None = None
    """Name of the bound PCI driver; None if unbound or unreadable."""
    numa_node: int | None = None
    """None where the kernel says -1 or nothing."""
    pf: str | None = None
    """PCI address of the physical function; None unless this is a VF whose PF is visible (`physfn`)."""
    vf_index: int | None = None
    """N of the PF's `virtfnN`; None unless `pf` is known."""
    is_management: bool = False
    """True if the vital product data holds `SW_MNG`: an NVSwitch management function (D9)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Auxiliary:
    """The auxiliary device that an RDMA device hangs under (sub-function, SF)."""

    name: str
    """`mlx5_core.sf.2`; its number is not the sfnum."""
    sfnum: int | None = None
    """`sfnum`, the number that a user gave to the SF; None where there is none."""


class CharKind(StrEnum):
    """Kinds of character devices below /dev/infiniband."""

    UVERBS = "uverbs"
    UMAD = "umad"
    ISSM = "issm"
    RDMA_CM = "rdma_cm"


@dataclass(frozen=True, slots=True, kw_only=True)
class CharNode:
    """A character device node, as sysfs promises it and as /dev has it."""

    kind: CharKind
    name: str
    """`uverbs0`."""
    path: str
    """On the host, never prefixed with the root: `/dev/infiniband/uverbs0`."""
    major: int | None
    """From sysfs `dev`; None if unreadable."""
    minor: int | None
    """From sysfs `dev`; None if unreadable."""
    ibdev: str | None = None
    """The HCA that it belongs to, by sysfs `ibdev`; None for rdma_cm."""
    guid: str | None = None
    """GUID of that HCA, which a rename leaves alone; None if it has none."""
    port: int | None = None
    """Port number for umad and issm; None for the others."""
    problem: Problem | None = None
    """None if /dev has a character device of this number; else why the node can't be given to a pod (V4)."""

    @property
    def is_usable(self) -> bool:
        """True if the node could be given to a pod when it was looked at."""
        return self.problem is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RdmaDevice:
    """One entry of `/sys/class/infiniband`. Its name says nothing about its driver (D2)."""

    name: str
    """The ibdev name, e.g. `mlx5_0`."""
    guid: str | None = None
    """`node_guid`, `58a2:e103:002a:09b8`; None if unreadable or all zero (EFA, unconfigured VF)."""
    pci: PciFunction | None = None
    """None for a device without a PCI ancestor (rxe, siw)."""
    auxiliary: Auxiliary | None = None
    """The SF that holds the device; None if it hangs under the PCI function itself."""
    software: str | None = None
    """`rdma_rxe` or `siw` for a software device; None for hardware."""
    is_sub_device: bool = False
    """True for an ibdev without a uverbs device beside one that has it on the same function (ConnectX-8's `smi1`)."""
    is_virtual: bool = False
    """True if it lies below `devices/virtual`: in only where a resource names it (design.md, 3)."""
    ports: tuple[Port, ...] = ()
    """By number."""
    netdevs: tuple[NetDevice, ...] | None = None
    """Host network interfaces by name, bond masters among them; empty = none, None = can't be told."""
    pf_netdevs: tuple[str, ...] = ()
    """Names of the interfaces that make a `pfNames` selector match: of the physical function for a VF, of the PCI function
    for an SF, its own otherwise; without representors, except that in switchdev mode only the uplink counts."""
    char_nodes: tuple[CharNode, ...] = ()
    """uverbs, umad and issm nodes by name; rdma_cm belongs to the `Inventory`."""
    nearest_gpu: str | None = None
    """PCI address of the display or 3D controller that shares the longest PCI path; None if no bridge is shared."""
    problems: tuple[Problem, ...] = ()
    """Sorted."""

    @property
    def driver(self) -> str | None:
        """The PCI driver; None for devices without PCI ancestor. Selectors also look at `software`."""
        return self.pci.driver if self.pci else None

    @property
    def numa_node(self) -> int | None:
        """NUMA node; None if unknown."""
        return self.pci.numa_node if self.pci else None

    @property
    def is_management(self) -> bool:
        """True for an NVSwitch management function."""
        return self.pci is not None and self.pci.is_management

    @property
    def link_types(self) -> tuple[LinkType, ...]:
        """Link types over all ports, sorted, without the unreadable ones."""
        return tuple(sorted({port.link_type for port in self.ports if port.link_type is not None}))


class NetnsMode(StrEnum):
    """RDMA network namespace mode (`/sys/module/ib_core/parameters/netns_mode`, RDMA netlink SYS_GET)."""

    SHARED = "shared"
    EXCLUSIVE = "exclusive"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """All that one scan of a node found."""

    devices: tuple[RdmaDevice, ...] = ()
    """By name."""
    rdma_cm: CharNode | None = None
    """None if rdma_ucm isn't loaded."""
    netns_mode: NetnsMode | None = None
    """None where it can't be told (old kernel, ib_core not loaded): counts as shared (E4)."""
    problems: tuple[Problem, ...] = ()
    """Of the node as a whole, sorted; those of a device are in the device."""
