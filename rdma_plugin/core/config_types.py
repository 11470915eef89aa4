# SPDX-License-Identifier: Apache-2.0
"""The types of the configuration's keys: a reader of `config_values` bound to the JSON Schema of what it reads.

The schema says as much as a schema can; where the reader knows more (order of a range, unclosed brackets in a glob), the
schema is the wider of the two, never the narrower.
"""

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema

from rdma_plugin.core import config_names
from rdma_plugin.core import config_values as values
from rdma_plugin.core.config_values import FunctionRange
from rdma_plugin.core.model import CharKind, LinkType

T = TypeVar("T")


def _once_each(entries: tuple[T, ...]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(entries))


def _any_case(words: tuple[str, ...]) -> str:
    return "|".join("".join(f"[{char.upper()}{char}]" for char in word) for word in words)


_NAME = r"^[^\s/]+$"
_PCI = r"([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
_RANGES = r"(#[0-9]+(-[0-9]+)?(,[0-9]+(-[0-9]+)?)*)?"

ListOf = Annotated[tuple[T, ...], Field(strict=False)]
"""A JSON list; not strict, because a tuple is made of it."""
Listed = Annotated[tuple[T, ...], Field(strict=False), AfterValidator(_once_each)]
"""The same; the second of two equal entries is dropped."""
HexId = Annotated[
    str, PlainValidator(values.hex_id), WithJsonSchema({"type": "string", "pattern": "^(0[xX])?[0-9a-fA-F]{1,4}$"})
]
IfName = Annotated[
    str,
    PlainValidator(values.glob("ibs*", values.MAX_IF_NAME)),
    WithJsonSchema({"type": "string", "pattern": _NAME, "maxLength": values.MAX_IF_NAME}),
]
RdmaName = Annotated[
    str,
    PlainValidator(values.glob("mlx5_*", values.MAX_RDMA_NAME)),
    WithJsonSchema({"type": "string", "pattern": _NAME, "maxLength": values.MAX_RDMA_NAME}),
]
DriverName = Annotated[
    str,
    PlainValidator(values.glob("mlx5_core", values.MAX_RDMA_NAME)),
    WithJsonSchema({"type": "string", "pattern": _NAME, "maxLength": values.MAX_RDMA_NAME}),
]
PciAddress = Annotated[
    str, PlainValidator(values.pci_address), WithJsonSchema({"type": "string", "pattern": f"^{_PCI}$"})
]
PfName = Annotated[
    FunctionRange,
    PlainValidator(values.function_range(values.glob("ens1f0np0", values.MAX_IF_NAME), "ens1f0np0")),
    WithJsonSchema({"type": "string", "pattern": rf"^[^\s/#]+{_RANGES}$"}),
]
RootDevice = Annotated[
    FunctionRange,
    PlainValidator(values.function_range(values.pci_address, "0000:18:00.0")),
    WithJsonSchema({"type": "string", "pattern": f"^{_PCI}{_RANGES}$"}),
]
LinkWord = Annotated[
    LinkType,
    PlainValidator(values.link_type),
    WithJsonSchema(
        {
            "type": "string",
            "anyOf": [{"enum": list(values.LINK_WORDS)}, {"pattern": f"^({_any_case(values.LINK_WORDS)})$"}],
        }
    ),
]
CharWord = Annotated[
    CharKind, PlainValidator(values.char_kind), WithJsonSchema({"enum": [kind.value for kind in CharKind]})
]
Flag = Annotated[bool, PlainValidator(values.flag), WithJsonSchema({"type": "boolean"})]

SlotCount = Annotated[
    int,
    PlainValidator(values.whole_number(0, values.MAX_SLOTS)),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": values.MAX_SLOTS}),
]
IntervalS = Annotated[
    int,
    PlainValidator(values.whole_number(0, values.MAX_INTERVAL_S, " (seconds; 0 = no periodic scan)")),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": values.MAX_INTERVAL_S}),
]
NumaNode = Annotated[
    int,
    PlainValidator(values.whole_number(0, values.MAX_NUMA_NODE)),
    WithJsonSchema({"type": "integer", "minimum": 0, "maximum": values.MAX_NUMA_NODE}),
]
ResourceName = Annotated[
    str,
    PlainValidator(config_names.resource_name),
    WithJsonSchema({"type": "string", "pattern": rf"^{config_names.QUALIFIED}$", "maxLength": config_names.MAX_NAME}),
]
ResourcePrefix = Annotated[
    str,
    PlainValidator(config_names.resource_prefix),
    WithJsonSchema({"type": "string", "pattern": "^[-a-z0-9_.]*$", "maxLength": config_names.MAX_PREFIX}),
]
Allocation = Annotated[
    Literal["all"], PlainValidator(values.choice("all", later=("device",))), WithJsonSchema({"enum": ["all"]})
]
Health = Annotated[
    Literal["any", "all", "present"],
    PlainValidator(values.choice("any", "all", "present")),
    WithJsonSchema({"enum": ["any", "all", "present"]}),
]
Topology = Annotated[
    Literal["auto", "off"], PlainValidator(values.choice("auto", "off")), WithJsonSchema({"enum": ["auto", "off"]})
]
Off = Annotated[bool, PlainValidator(values.off), WithJsonSchema({"const": False})]
