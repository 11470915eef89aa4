# SPDX-License-Identifier: Apache-2.0
"""What the models refused, as faults that a person can act on: key path, value, what is allowed, nearest key.

In come a document and pydantic's list of errors; out come (path, sentence) pairs and, sorted by the place in the
document, `Fault` values. The work is bounded whatever the number of errors: only the faults that are shown are worded.
"""

from collections.abc import Callable, Iterable
from difflib import get_close_matches

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from rdma_plugin.core.config_models import Config, Resource, Selectors, keys
from rdma_plugin.core.config_text import Json, Object, Path, show, show_path
from rdma_plugin.core.errors import Fault

MAX_FAULTS = 50
"""Faults that are reported one by one; a file with more is broken as a whole."""

Finding = tuple[Path, Callable[[], str]]
"""Where, and what makes the sentence when it is wanted."""

_WANTED = {
    "configList": "is missing; write a list with one object for each resource",
    "resourceName": 'is missing; write for example "resourceName": "hca_shared_devices_a"',
    "rdmaHcaMax": 'is missing; write the number of shared slots, for example "rdmaHcaMax": 200',
}
_SENTENCES = {
    "model_type": "{value} is not allowed; write an object in {{}}",
    "string_unicode": "the key {value} is not text",
}
_HOMES: tuple[tuple[type[BaseModel], str], ...] = (
    (Config, "at the top of the file"),
    (Resource, "in an entry of configList"),
    (Selectors, "inside selectors"),
)


def findings(document: Json, error: ValidationError) -> Iterable[Finding]:
    """Yield what the models refused; the order is pydantic's."""
    for details in error.errors(include_url=False):
        path = _as_written(document, details["loc"])
        if details["type"] != "missing" or not has_key_in_other_case(_at(document, path[:-1]), str(path[-1])):
            yield path, _wording(path, details)


def in_order(document: Json, found: Iterable[Finding]) -> tuple[Fault, ...]:
    """Word the findings in document order, the first `MAX_FAULTS` of them; one more line counts the rest."""
    place = _places(document)
    ordered = sorted(found, key=lambda finding: place(finding[0]))
    faults = [Fault(show_path(path), word()) for path, word in ordered[:MAX_FAULTS]]
    if len(ordered) > MAX_FAULTS:
        faults.append(Fault("file", f"has {len(ordered) - MAX_FAULTS} more faults; correct these first"))
    return tuple(faults)


def has_key_in_other_case(document: Json, key: str) -> bool:
    """Return whether the object has the key, but with other capitals: an unknown key, so no missing one too."""
    return isinstance(document, Object) and any(name.lower() == key.lower() and name != key for name in document)


def _as_written(document: Json, loc: Path) -> Path:
    """Turn the models' path into the file's: a resource's old `devices` list is read as selectors.ifNames."""
    if loc[0:1] == ("configList",) and loc[2:4] == ("selectors", "ifNames"):
        resource = _at(document, loc[:2])
        selectors = _at(document, loc[:3])
        has_own = isinstance(selectors, Object) and "ifNames" in selectors
        if isinstance(resource, Object) and "devices" in resource and not has_own:
            return (*loc[:2], "devices", *loc[4:])
    return loc


def _at(document: Json, path: Path) -> Json:
    here = document
    for part in path:
        if isinstance(here, Object) and isinstance(part, str):
            here = here.get(part)
        elif isinstance(here, list) and isinstance(part, int) and part < len(here):
            here = here[part]
        else:
            return None
    return here


def _places(document: Json) -> Callable[[Path], tuple[int, ...]]:
    """Return a sort key for paths: the position in each object on the way; what is missing comes last in its object."""
    positions: dict[int, dict[str, int]] = {}

    def position(inside: Object, key: str) -> int:
        if id(inside) not in positions:
            positions[id(inside)] = {name: i for i, name in enumerate(inside)}
        return positions[id(inside)].get(key, len(inside))

    def place(path: Path) -> tuple[int, ...]:
        here: Json = document
        found: list[int] = []
        for part in path:
            if isinstance(here, Object) and isinstance(part, str):
                found.append(position(here, part))
            elif isinstance(part, int):
                found.append(part)
            here = _at(here, (part,))
        return tuple(found)

    return place


def _wording(path: Path, details: ErrorDetails) -> Callable[[], str]:
    value = details["input"]
    match details["type"]:
        case "missing":
            return lambda: _WANTED.get(str(path[-1]), "is missing")
        case "extra_forbidden":
            return lambda: _unknown_key(path)
        case "tuple_type":
            example = f"[{show(value)}]" if isinstance(value, str | int) and not isinstance(value, bool) else "[...]"
            return lambda: f"{show(value)} is not a list; write {example}"
        case "value_error":
            text = str(details["ctx"]["error"])
            return lambda: text
        case other:
            template = _SENTENCES.get(other, "{value} is not allowed")
            return lambda: template.format(value=show(value))


def _unknown_key(path: Path) -> str:
    key = str(path[-1])
    home = {1: Config, 3: Resource}.get(len(path), Selectors)
    known = keys(home)
    if key in known:  # only an old spelling beside the new one gets here
        return "is the old name of deviceIDs, which is here too; write only one of them"
    folded = {name.lower(): name for name in known}
    near = get_close_matches(key[:40].lower(), folded, 1, 0.7)
    if near:
        return f'unknown key; did you mean "{folded[near[0]]}"?'
    for model, where in _HOMES:
        if key in keys(model):
            return f"unknown key here; it belongs {where}"
    return f"unknown key; allowed are {', '.join(known)}"
