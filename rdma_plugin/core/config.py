# SPDX-License-Identifier: Apache-2.0
"""The configuration file: text in, a frozen `Config` out, or every fault of the file at once.

Drop-in for the peer's file: its keys, its `devices` list and its nulls are accepted as they are. Strict otherwise: an
unknown key is a fault that names the nearest one, because a selector that is silently dropped selects everything (S4).
Does no reading of files and knows no node: whether a selector matches anything is for `pools` to say.
"""

from collections.abc import Iterator

from pydantic import ValidationError

from rdma_plugin.core import config_faults, config_text
from rdma_plugin.core.config_faults import Finding
from rdma_plugin.core.config_models import Config, Resource, Selectors, says_something
from rdma_plugin.core.config_schema import json_schema
from rdma_plugin.core.config_text import Object, Path
from rdma_plugin.core.config_values import FunctionRange
from rdma_plugin.core.errors import ConfigError, Fault

__all__ = ["Config", "FunctionRange", "Resource", "Selectors", "json_schema", "parse"]

_EMPTY = (
    'no list holds anything, which would take every RDMA device; write for example "vendors": ["15b3"] (Mellanox), '
    '"linkTypes": ["infiniband"] or "ifNames": ["ibs*"]'
)


def parse(text: str | bytes, source: str) -> Config:
    """Return the configuration; `source` is the file's name as the user wrote it, for messages.

    Raises:
        ConfigError: With all faults, in document order.
    """
    document = config_text.read(text, source)
    if not isinstance(document, Object):
        what = f'{config_text.show(document)} stands at the top; a configuration is an object: {{"configList": [...]}}'
        raise ConfigError(source, (Fault("file", what),))
    found = list(_across_keys(document))
    try:
        config = Config.model_validate(document)
    except ValidationError as err:
        found.extend(config_faults.findings(document, err))
        raise ConfigError(source, config_faults.in_order(document, found)) from err
    if found:
        raise ConfigError(source, config_faults.in_order(document, found))
    return config


def _across_keys(document: Object) -> Iterator[Finding]:
    """Yield the faults that no key has by itself, however broken the rest of the document is."""
    for path in config_text.repeated_keys(document):
        yield path, lambda: "stands here more than once; remove all but one"
    resources = document.get("configList")
    if not isinstance(resources, list):
        return
    if not resources:
        yield ("configList",), lambda: "no resources configuration found: the list is empty; write at least one object"
    seen: dict[tuple[str, str], int] = {}
    for i, resource in enumerate(resources):
        if isinstance(resource, Object):
            yield from _of_resource(("configList", i), resource)
            yield from _of_name(i, resource, seen)


def _of_resource(path: Path, resource: Object) -> Iterator[Finding]:
    has_selectors = says_something(resource.get("selectors"))
    has_devices = resource.get("devices") not in (None, [])
    if has_selectors and has_devices:
        both = "is the old name of selectors.ifNames and can't stand beside selectors; move its names to ifNames there"
        yield (*path, "devices"), lambda: both
    elif not has_selectors and not has_devices and not config_faults.has_key_in_other_case(resource, "selectors"):
        is_there = resource.get("selectors") is not None
        yield (*path, "selectors"), lambda: _EMPTY if is_there else f"is missing; {_EMPTY.partition('; ')[2]}"


def _of_name(i: int, resource: Object, seen: dict[tuple[str, str], int]) -> Iterator[Finding]:
    prefix, name = resource.get("resourcePrefix") or "rdma", resource.get("resourceName")
    if isinstance(prefix, str) and isinstance(name, str):
        first = seen.setdefault((prefix, name), i)
        if first != i:
            text = f"{config_text.show(f'{prefix}/{name}')} already exists in configList[{first}]; names must be unique"
            yield ("configList", i, "resourceName"), lambda: text
