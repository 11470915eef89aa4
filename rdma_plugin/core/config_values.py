# SPDX-License-Identifier: Apache-2.0
"""The values of a configuration, each kind on its own: what it may be, and its normal form.

A reader takes one JSON value and returns it in normal form, or raises UnfitError with a sentence that names the value,
what is allowed and what to write. Nothing here knows which key a value belongs to, nor looks at another value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import NoReturn

from rdma_plugin.core import parse
from rdma_plugin.core.config_text import Number, show
from rdma_plugin.core.model import CharKind, LinkType

MAX_SLOTS = 100_000
"""Keeps the encoded device list below the 4 MiB that older kubelets receive (N1)."""
MAX_INTERVAL_S = 86_400
"""One day."""
MAX_NUMA_NODE = 1023
"""The kernel's largest MAX_NUMNODES is 1024 (arch/x86/Kconfig, NODES_SHIFT)."""
MAX_FUNCTION = 65_535
"""An SR-IOV capability counts VFs in 16 bits (include/uapi/linux/pci_regs.h, PCI_SRIOV_NUM_VF)."""
MAX_IF_NAME = 127
"""ALTIFNAMSIZ - 1 (include/uapi/linux/if.h); interface names proper have at most 15 characters."""
MAX_RDMA_NAME = 63
"""IB_DEVICE_NAME_MAX - 1 (include/uapi/rdma/rdma_netlink.h); driver names are shorter than that too."""
_MAX_RANGE_TEXT = 1000
_VENDOR_NAMES = {
    "mellanox": "15b3",
    "nvidia": "15b3",
    "intel": "8086",
    "broadcom": "14e4",
    "amazon": "1d0f",
    "aws": "1d0f",
}
LINK_WORDS = ("infiniband", "ib", "ether", "ethernet", "eth", "roce", "unknown")


class UnfitError(ValueError):
    """A value that its key doesn't take; the text becomes the fault's sentence."""


def refuse(text: str) -> NoReturn:
    """Raise UnfitError."""
    raise UnfitError(text)


@dataclass(frozen=True, slots=True)
class FunctionRange:
    """An entry of pfNames or rootDevices: `name#0-3,5`."""

    name: str
    """Interface name (a glob) or PCI address of the physical function."""
    indices: tuple[tuple[int, int], ...] | None
    """First and last index of each range, both included; None without `#`: the function itself and all below it."""

    def __str__(self) -> str:
        ranges = ",".join(f"{low}-{high}" if low != high else str(low) for low, high in self.indices or ())
        return f"{self.name}#{ranges}" if ranges else self.name


def plain_text(value: object, example: str, longest: int) -> str:
    """Return a text without spaces of at most `longest` characters; `example` shows what could be written."""
    if not isinstance(value, str):
        quoted = (
            f"; write it in quotes: {show(str(value))}" if type(value) is int else f'; write for example "{example}"'
        )
        refuse(f"{show(value)} is not text{quoted}")
    if not value:
        refuse(f'the text is empty; write for example "{example}"')
    if len(value) > longest:
        refuse(f"{show(value)} has {len(value)} characters; at most {longest} are allowed")
    if " " in value or not value.isprintable():
        refuse(f'{show(value)} has a space or an unprintable character in it; write for example "{example}"')
    return value


def whole_number(low: int, high: int, more: str = "") -> Callable[[object], int]:
    """Return a reader of whole numbers; `more` ends the sentence that says what is allowed."""

    def read(value: object) -> int:
        allowed = f"a whole number from {low} to {high} is allowed{more}"
        if isinstance(value, str):
            quoteless = f"; write {value} without quotes" if parse.decimal(value) is not None else ""
            refuse(f"{show(value)} is text{quoteless}; {allowed}")
        if isinstance(value, Number):
            whole = value.text.removesuffix(".0")
            plain = f"; write {whole}" if parse.decimal(whole) is not None else ""
            refuse(f"{show(value)} is not a plain whole number{plain}; {allowed}")
        if type(value) is not int:  # a boolean is an int to Python
            refuse(f"{show(value)} is not a number; {allowed}")
        if not low <= value <= high:
            refuse(f"{value} is out of range; {allowed}")
        return value

    return read


def flag(value: object) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        word = value.lower() if isinstance(value, str) else ""
        refuse(
            f"{show(value)} is not allowed; write {word if word in ('true', 'false') else 'true or false'}, unquoted"
        )
    return value


def off(value: object) -> bool:
    """Read false; true is for a later version."""
    if flag(value):
        refuse("true is not available in this version; write false or remove the key")
    return False


def choice(*allowed: str, later: tuple[str, ...] = ()) -> Callable[[object], str]:
    """Return a reader of fixed words; those in `later` are refused by name."""

    def read(value: object) -> str:
        if isinstance(value, str) and value in allowed:
            return value
        words = " or ".join(f'"{word}"' for word in allowed)
        if isinstance(value, str) and value in later:
            refuse(f"{show(value)} is not available in this version; write {words}")
        near = get_close_matches(value[:30].lower(), allowed, 1) if isinstance(value, str) else []
        refuse(f"{show(value)} is not allowed; write {words}" + (f'; did you mean "{near[0]}"?' if near else ""))

    return read


def hex_id(value: object) -> str:
    """Read a PCI vendor or device id; four lower-case digits come out."""
    text = plain_text(value, "15b3", longest=60)
    known = parse.hex_id(text)
    if known is None:
        vendor = _VENDOR_NAMES.get(text.lower(), "15b3")
        refuse(f'{show(text)} is not a hexadecimal id of one to four digits; write for example "{vendor}"')
    return known


def glob(example: str, longest: int) -> Callable[[object], str]:
    """Return a reader of names that may be shell globs (`ibs*`)."""

    def read(value: object) -> str:
        text = plain_text(value, example, longest)
        if "/" in text:
            refuse(f'{show(text)} has a "/", which no name has; write for example "{example}"')
        if parse.pci_address(text):
            refuse(f"{show(text)} is a PCI address; write it under pciAddresses")
        rest = text
        while "[" in rest:
            # fnmatch takes an unclosed bracket literally, which nobody means; a "]" right after "[" or "[!" is a member
            rest = rest.split("[", 1)[1].removeprefix("!")
            end = rest.find("]", 1)
            if end < 0:
                refuse(f'{show(text)} has a "[" without its "]"; write for example "ib[0-3]"')
            rest = rest[end + 1 :]
        return text

    return read


def pci_address(value: object) -> str:
    """Read a PCI address; the domain may be missing."""
    text = plain_text(value, "0000:18:00.0", longest=60)
    known = parse.pci_address(text)
    if known is None:
        refuse(f'{show(text)} is not a PCI address; write for example "0000:18:00.0"')
    return known


def function_range(read_name: Callable[[object], str], example: str) -> Callable[[object], FunctionRange]:
    """Return a reader of `name#0-3,5`."""

    def read(value: object) -> FunctionRange:
        text = plain_text(value, example, longest=_MAX_RANGE_TEXT)
        name, mark, ranges = text.partition("#")
        if "#" in ranges:
            refuse(f'{show(text)} has two "#"; write for example "{example}#0-3,5"')
        indices = tuple(_index_range(item, text) for item in ranges.split(",")) if mark else None
        return FunctionRange(read_name(name), indices)

    return read


def _index_range(item: str, text: str) -> tuple[int, int]:
    first, dash, last = item.partition("-")
    low, high = parse.decimal(first), parse.decimal(last if dash else first)
    if low is None or high is None:
        refuse(f'{show(text)}: {show(item)} is not an index or a range of indices; write for example "#0-3,5"')
    if low > high:
        refuse(f'{show(text)}: the range {show(item)} is reversed; write "{high}-{low}"')
    if high > MAX_FUNCTION:
        refuse(f"{show(text)}: index {high} is out of range; 0 to {MAX_FUNCTION} is allowed")
    return low, high


def link_type(value: object) -> LinkType:
    """Read a link type or one of its synonyms, in any case."""
    text = plain_text(value, "infiniband", longest=60)
    known = parse.link_word(text)
    if known is None:
        near = get_close_matches(text.lower(), LINK_WORDS, 1)
        more = f'; did you mean "{near[0]}"?' if near else ""
        refuse(f'{show(text)} is not a link type; write "infiniband" (or "ib"), "ether" (or "eth", "roce"){more}')
    return known


def char_kind(value: object) -> CharKind:
    """Read a kind of char device."""
    return CharKind(choice(*CharKind)(value))


def with_uverbs(kinds: tuple[CharKind, ...]) -> tuple[CharKind, ...]:
    """Refuse a list of char devices without uverbs."""
    if CharKind.UVERBS not in kinds:
        refuse('"uverbs" is missing; no RDMA program works without it, so add it')
    return kinds
