# SPDX-License-Identifier: Apache-2.0
"""The configuration as frozen values, one model for each object of the file; pydantic is used here only.

The models take a document of `config_text` and hold values in normal form. Every key has its description, examples and
schema here, so that the JSON Schema and the fault texts follow from the same lines. Rules that look at more than one
key are in `config`; the two old spellings (`devices`) are folded here.
"""

from functools import cache
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, model_validator
from pydantic.alias_generators import to_camel

from rdma_plugin.core import config_names
from rdma_plugin.core import config_types as types
from rdma_plugin.core import config_values as values
from rdma_plugin.core.model import CharKind, Problem


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", alias_generator=to_camel)

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:  # noqa: ANN401 - whatever stands in the file
        """Drop nulls of known keys, which the peer takes as absent too; of unknown keys the name is the fault."""
        if not isinstance(data, dict):
            return data
        known = keys(cls)
        return {key: value for key, value in data.items() if value is not None or key not in known}


class Selectors(_Model):
    """Which RDMA devices a resource takes: AND over keys, OR within a key. A missing or empty list asks for nothing."""

    vendors: types.Listed[types.HexId] = Field(
        (), description="PCI vendor ids, hexadecimal; case and 0x don't matter.", examples=[["15b3"]]
    )
    device_ids: types.Listed[types.HexId] = Field(
        (),
        validation_alias=AliasChoices("deviceIDs", "devices"),
        description="PCI device ids, hexadecimal; case and 0x don't matter.",
        examples=[["1021"]],
    )
    drivers: types.Listed[types.DriverName] = Field(
        (), description="PCI drivers, or rdma_rxe and siw for software devices; globs.", examples=[["mlx5_core"]]
    )
    if_names: types.Listed[types.IfName] = Field(
        (),
        description="Network interfaces of the device, their alternative names, or the bond above them; globs.",
        examples=[["ibs108"], ["ibs*"]],
    )
    pf_names: types.Listed[types.PfName] = Field(
        (),
        description="Interface of the physical function, which is taken with all its functions; globs. "
        "name#0-3,5 takes only VFs (or SFs) by index.",
        examples=[["ens1f0np0#0-3,5"]],
    )
    link_types: types.Listed[types.LinkWord] = Field(
        (), description="Link layer of any of the device's ports, any case.", examples=[["infiniband"], ["roce"]]
    )
    root_devices: types.Listed[types.RootDevice] = Field(
        (),
        description="PCI address of the physical function; ranges as in pfNames.",
        examples=[["0000:18:00.0"], ["0000:18:00.0#0-3"]],
    )
    rdma_devices: types.Listed[types.RdmaName] = Field(
        (), description="Names in /sys/class/infiniband; globs.", examples=[["mlx5_*"]]
    )
    pci_addresses: types.Listed[types.PciAddress] = Field(
        (), description="PCI addresses; a missing domain is 0000.", examples=[["0000:18:00.0"]]
    )
    numa_nodes: types.Listed[types.NumaNode] = Field(
        (), description="NUMA nodes that the device is close to.", examples=[[0]]
    )

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, data: Any) -> Any:  # noqa: ANN401 - whatever stands in the file
        """Drop empty lists, so that `devices: []` doesn't clash with deviceIDs."""
        if not isinstance(data, dict):
            return data
        known = keys(cls)
        return {key: value for key, value in data.items() if value != [] or key not in known}


class Resource(_Model):
    """One extended resource of the node."""

    resource_name: types.ResourceName = Field(
        description="Name behind the slash; unique for each prefix.", examples=["hca_shared_devices_a"]
    )
    resource_prefix: types.ResourcePrefix = Field(
        "rdma", description="DNS name before the slash; an empty text means rdma.", examples=["example.com"]
    )
    rdma_hca_max: types.SlotCount = Field(
        description="Number of shared slots, that is, of containers that can hold the resource at once; 0 offers none.",
        examples=[200],
    )
    selectors: Selectors = Field(
        default_factory=Selectors, description="Which devices; at least one list must hold something."
    )
    exclude: Selectors | None = Field(
        None,
        description="Devices to leave out although the selectors match: those for which any entry of any list matches.",
    )
    char_devices: Annotated[types.Listed[types.CharWord], AfterValidator(values.with_uverbs)] = Field(
        (CharKind.UVERBS, CharKind.RDMA_CM),
        description="Kinds of char devices that a pod gets; uverbs must be among them, the others are given where they exist.",
        json_schema_extra={"contains": {"const": CharKind.UVERBS.value}},
    )
    allocation: types.Allocation = Field("all", description="all: each slot gives all HCAs of the resource.")
    health: types.Health = Field(
        "any", description="Healthy while one HCA has an active port, while all have, or whatever the ports say."
    )
    topology: types.Topology = Field("auto", description="auto: tell the kubelet the NUMA nodes of the HCAs.")
    env: types.Flag = Field(
        default=True, description="Set an environment variable with the names of the HCAs in the container."
    )
    nccl_env: types.Flag = Field(default=False, description="Set NCCL_IB_HCA in the container.")
    cdi: types.Off = Field(default=False, description="CDI is not available in this version.")
    include_management: types.Flag = Field(
        default=False, description="Allow NVSwitch management functions (SW_MNG in their VPD)."
    )

    @model_validator(mode="before")
    @classmethod
    def _fold_devices(cls, data: Any) -> Any:  # noqa: ANN401 - whatever stands in the file
        """Read `devices`, the old name of selectors.ifNames; both at once are a fault that `config` states."""
        if not isinstance(data, dict) or "devices" not in data:
            return data
        folded = {key: value for key, value in data.items() if key != "devices"}
        selectors = data.get("selectors")
        if not says_something(selectors):
            folded["selectors"] = {**(selectors or {}), "ifNames": data["devices"]}
        return folded

    @property
    def full_name(self) -> str:
        """What pods ask for, `rdma/hca_shared_devices_a`."""
        return f"{self.resource_prefix}/{self.resource_name}"

    @property
    def problem(self) -> Problem | None:
        """What is wrong with the name although it was let through; None for nearly all."""
        if config_names.is_subdomain(self.resource_prefix):
            return None
        return Problem(
            what=f"{self.full_name}: the kubelet refuses this name",
            why=f'resourcePrefix "{self.resource_prefix}" is not a DNS name, because it has an underscore',
            hint=f'write for example "resourcePrefix": "{self.resource_prefix.replace("_", "-")}"',
        )


class Config(_Model):
    """The whole file."""

    periodic_update_interval: types.IntervalS = Field(
        60, description="Seconds between the slow re-scans that stand behind the events; 0 = none."
    )
    config_list: types.ListOf[Resource] = Field(description="One object for each resource, at least one.")


@cache
def keys(model: type[BaseModel]) -> tuple[str, ...]:
    """Return every key that an object of the file may have, old spellings included, in the order of the documentation."""
    names: list[str] = []
    for name, field in model.model_fields.items():
        alias = field.validation_alias
        names.extend(map(str, alias.choices) if isinstance(alias, AliasChoices) else [to_camel(name)])
    return (*names, "devices") if model is Resource else tuple(names)


def says_something(value: object) -> bool:
    """Return whether a selectors object asks for anything; what isn't an object does, and is a fault elsewhere."""
    if isinstance(value, dict):
        return any(entry not in (None, []) for entry in value.values())
    return value is not None
