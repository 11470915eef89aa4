# SPDX-License-Identifier: Apache-2.0
"""What `discover` and `explain` show a person: the JSON documents of `core.explain` as rich tables.

Imported only where a table is printed, so that `run` doesn't pay for rich.
"""

import sys
from collections.abc import Iterable

from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rdma_plugin.core.model import Inventory, Problem, RdmaDevice
from rdma_plugin.core.pool import Pool

_COLUMNS = (
    *("DEVICE", "PCI ADDRESS", "ID", "DRIVER", "INTERFACES", "LINK", "STATE", "GBIT/S", "NUMA", "NEAREST GPU"),
    *("CHAR DEVICES", "NOTE"),
)
_UNBOUNDED = 400
"""Columns when the output is no terminal: a file or a pipe wants whole lines."""


def _console() -> Console:
    return Console(
        width=None if sys.stdout is not None and sys.stdout.isatty() else _UNBOUNDED,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def discovery(inventory: Inventory) -> None:
    """Print every RDMA device of the node and what is wrong with it."""
    console = _console()
    if not inventory.devices:
        console.print("No RDMA device.")
    else:
        rows = [_cells(device) for device in inventory.devices]
        table = _table(*_COLUMNS)
        for row in rows:
            table.add_row(*map(_text, row))
        if Measurement.get(console, console.options.update(width=_UNBOUNDED), table).maximum <= console.width:
            console.print(table)
        else:
            _cards(console, rows)
        console.print(_text(f"rdma_cm: {_rdma_cm(inventory)}    netns mode: {inventory.netns_mode or 'unknown'}"))
    _problems(console, (*inventory.problems, *(problem for device in inventory.devices for problem in device.problems)))


def _cards(console: Console, rows: Iterable[tuple[str, ...]]) -> None:
    """Print a few lines for each device, where the terminal is too narrow for a table."""
    for name, *cells in rows:
        console.print(_text(name, "bold"))
        facts = [
            f"{column.lower()} {cell}"
            for column, cell in zip(_COLUMNS[1:], cells, strict=True)
            if cell not in ("", "-")
        ]
        console.print(Padding(_text(", ".join(facts)), (0, 0, 0, 2)))


def _text(cell: str, style: str = "") -> Text:
    """Return text without anything that a terminal would obey: the kernel allows nearly every byte in a name."""
    shown = "".join(char if char.isprintable() else ascii(char)[1:-1] for char in cell)
    return Text(shown, style=style)


def _rdma_cm(inventory: Inventory) -> str:
    node = inventory.rdma_cm
    if node is None:
        return "none (rdma_ucm isn't loaded)"
    return node.path if node.is_usable else f"{node.path} (not usable)"


def _cells(device: RdmaDevice) -> tuple[str, ...]:
    pci = device.pci
    names = "?" if device.netdevs is None else " ".join(net.name for net in device.netdevs if not net.is_representor)
    representors = sum(net.is_representor for net in device.netdevs or ())
    if representors:
        names += f" (+{representors} representors)"
    return (
        device.name,
        pci.address if pci else "-",
        f"{pci.vendor}:{pci.device}" if pci and pci.vendor and pci.device else "-",
        device.driver or device.software or "-",
        names or "-",
        " ".join(device.link_types) or "-",
        " ".join(dict.fromkeys(port.state or "?" for port in device.ports)) or "-",
        " ".join(dict.fromkeys("?" if port.rate_gbps is None else f"{port.rate_gbps:g}" for port in device.ports))
        or "-",
        "-" if device.numa_node is None else str(device.numa_node),
        device.nearest_gpu or "-",
        " ".join(node.name if node.is_usable else f"{node.name}(!)" for node in device.char_nodes) or "none",
        _note(device),
    )


def _note(device: RdmaDevice) -> str:
    notes: list[str] = []
    if device.pci and device.pci.pf:
        notes.append(f"VF {device.pci.vf_index} of {device.pci.pf}")
    if device.auxiliary:
        notes.append(f"SF {device.auxiliary.sfnum} ({device.auxiliary.name})")
    if device.is_management:
        notes.append("NVSwitch management")
    if device.is_virtual:
        notes.append("software device")
    return ", ".join(notes)


def explanation(pools: Iterable[Pool], problems: Iterable[Problem]) -> None:
    """Print for each resource what it offers and why, then each device's verdict."""
    console = _console()
    for pool in pools:
        health = "" if pool.healthy == len(pool.slots) else f", {pool.healthy} healthy"
        console.print(_text(f"{pool.resource}: {len(pool.slots)} slots{health}", "bold"))
        console.print(_text(f"  why: {pool.reason}"))
        if pool.hint:
            console.print(_text(f"  do:  {pool.hint}", "yellow"))
        if pool.verdicts:
            table = _table("  DEVICE", "", "REASON")
            for verdict in pool.verdicts:
                style = "green" if verdict.selected else ""
                table.add_row(
                    _text(f"  {verdict.device}"),
                    _text("in" if verdict.selected else "out", style),
                    _text(verdict.reason),
                )
            console.print(table)
        console.print()
    _problems(console, problems)


def _problems(console: Console, problems: Iterable[Problem]) -> None:
    unique = sorted(set(problems))
    if unique:
        console.print(_text("Problems", "bold"))
    for problem in unique:
        for line in (f"  {problem.what}", f"    why: {problem.why}", f"    do:  {problem.hint}"):
            console.print(_text(line))
