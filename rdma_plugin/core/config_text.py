# SPDX-License-Identifier: Apache-2.0
"""The text of a configuration file into a JSON document, strictly, and values back into short text for messages.

In comes what a person wrote or broke; out comes a document of plain values with the keys that occur twice, or a
ConfigError with one readable fault. Whatever the input, the work is linear in its length, and nothing raises but
ConfigError. What the keys mean is not known here.
"""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from rdma_plugin.core.errors import ConfigError, Fault

MAX_SIZE = 2 * 1024 * 1024
"""Characters. A ConfigMap holds at most 1 MiB (k8s.io/api/core/v1, MaxSecretSize)."""
MAX_DEPTH = 32
"""Levels of brackets; a configuration has five. Far below the depth at which the JSON reader gives up."""
MAX_TOKENS = 20_000
"""Strings, brackets and commas; keeps the time to check a hostile file below a second."""

_SHOWN = 60
_WHOLE_DIGITS = 18
_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,40}")
# A string is taken whole, also one that isn't closed, and never looked at twice (possessive), so the scan stays linear.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{},]|-?Infinity|NaN', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Number:
    """A JSON number that isn't a plain whole one, such as `200.0` or `1e9`; no key takes it."""

    text: str
    """As it stands in the file."""


Json: TypeAlias = "Object | list[Json] | str | int | bool | Number | None"
Path: TypeAlias = tuple[str | int, ...]
"""Keys and list indices from the top of the document."""


class Object(dict[str, "Json"]):
    """A JSON object in the file's order; of a key that occurs twice it holds the last value."""

    def __init__(self, pairs: list[tuple[str, Json]]) -> None:
        """`pairs` as they stand in the file."""
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs) if len(pairs) > len(self) else {}
        self.repeated = tuple(key for key, count in counts.items() if count > 1)
        """Keys that occur more than once."""


def read(text: str | bytes, source: str) -> Json:
    """Return the document.

    Raises:
        ConfigError: The text is no JSON in UTF-8; one fault says where and what to do.
    """
    try:
        return _read(text)
    except _UnreadableError as err:
        raise ConfigError(source, (Fault(err.where, err.what),)) from err


def repeated_keys(document: Json) -> Iterator[Path]:
    """Yield the path of each key that occurs more than once in its object."""
    left: list[tuple[Path, Json]] = [((), document)]
    while left:
        path, value = left.pop()
        if isinstance(value, Object):
            yield from ((*path, key) for key in value.repeated)
            left.extend(((*path, key), inner) for key, inner in value.items())
        elif isinstance(value, list):
            left.extend(((*path, i), inner) for i, inner in enumerate(value) if isinstance(inner, Object | list))


def show(value: object) -> str:
    """Return a value as JSON of at most about 60 characters, in ASCII so that look-alike letters show."""
    match value:
        case str():
            quoted = json.dumps(value[:_SHOWN])
            return quoted if len(value) <= _SHOWN else f'{quoted[:-1]}..."'
        case Number(text=text):
            return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        case None | bool() | int():
            return json.dumps(value)
        case dict():
            return "an object"
        case _:
            return "a list"


def show_path(path: Path) -> str:
    """Return a path as `configList[0].selectors.vendors[1]`; `file` for the document as a whole."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN_KEY.fullmatch(part):
            text += f".{part}" if text else part
        else:
            text += f"[{show(part)}]"
    return text or "file"


class _UnreadableError(Exception):
    def __init__(self, where: str, what: str) -> None:
        self.where = where
        self.what = what
        super().__init__(f"{where}: {what}")


def _read(text: str | bytes) -> Json:
    if len(text) > MAX_SIZE:
        raise _UnreadableError("file", f"is longer than {MAX_SIZE // 2**20} MiB; no configuration is")
    document = _decode(text) if isinstance(text, bytes) else text
    if document.startswith("\ufeff"):
        raise _UnreadableError("file", "starts with a byte-order mark; save it as UTF-8 without one (without BOM)")
    if "\0" in document:
        what = "there is a NUL character; save the file as plain UTF-8 text"
        raise _UnreadableError(_place(document, document.index("\0")), what)
    if not document.strip(" \t\r\n"):
        raise _UnreadableError("file", 'is empty; write at least {"configList": [...]} with one resource in it')
    _refuse_excess(document)
    try:
        loaded: Json = json.loads(document, object_pairs_hook=Object, parse_int=_whole, parse_float=Number)
    except json.JSONDecodeError as err:
        offset, what = _syntax(document, err)
        raise _UnreadableError(_place(document, offset), what) from err
    return loaded


def _decode(data: bytes) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _UnreadableError("file", "is UTF-16; save it as UTF-8 without a byte-order mark")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as err:
        line = data.count(b"\n", 0, err.start) + 1
        what = f"byte 0x{data[err.start]:02x} at offset {err.start} (line {line}) is not UTF-8; save the file as UTF-8"
        raise _UnreadableError("file", what) from err


def _refuse_excess(document: str) -> None:
    """Refuse what the JSON reader would choke on or let pass: deep nesting, masses of values, NaN and Infinity."""
    depth = 0
    for count, match in enumerate(_TOKEN.finditer(document)):
        token = match.group()
        if token in ("{", "["):
            depth += 1
        elif token in ("}", "]"):
            depth -= 1
        elif token[0] not in '",':
            what = f"{token} is not a JSON number; write a whole number such as 200"
            raise _UnreadableError(_place(document, match.start()), what)
        if depth > MAX_DEPTH:
            what = f"brackets are nested deeper than {MAX_DEPTH} levels; a configuration has five"
            raise _UnreadableError(_place(document, match.start()), what)
        if count > MAX_TOKENS:
            raise _UnreadableError("file", f"has more than {MAX_TOKENS} strings, brackets and commas; use globs")


def _whole(text: str) -> int | Number:
    return int(text) if len(text) <= _WHOLE_DIGITS else Number(text)


def _place(document: str, offset: int) -> str:
    line = document.count("\n", 0, offset) + 1
    return f"line {line}, column {offset - document.rfind(chr(10), 0, offset)}"


def _syntax(document: str, err: json.JSONDecodeError) -> tuple[int, str]:
    """Say where and what is wrong; for the usual slips in words that don't depend on the Python version."""
    found = document[err.pos : err.pos + 1]
    # Python 3.13 points at a comma too many, older ones at the bracket behind it
    comma = err.pos if found == "," else len(document[: err.pos].rstrip()) - 1
    if document[comma : comma + 1] == "," and document[comma + 1 :].lstrip()[:1] in ("}", "]"):
        return comma, "there is a comma before a closing bracket; remove it"
    slips = (
        (found == "", "the file ends too early; a bracket is not closed or a value is missing"),
        (found == "'", "JSON wants double quotes, not single ones"),
        (found in ("#", "/"), "JSON has no comments; remove it"),
        (err.msg.startswith("Unterminated"), "a string begins here and its closing quote is missing"),
        (err.msg.startswith("Extra"), f"the document has ended, but {show(found)} follows; remove what is too much"),
        (
            err.msg.startswith("Invalid control"),
            "a string holds a line break or control character; write it as an escape",
        ),
    )
    usual = f"this is not JSON: {err.msg[:1].lower()}{err.msg[1:]}, found {show(found)}"
    return err.pos, next((text for applies, text in slips if applies), usual)
