# SPDX-License-Identifier: Apache-2.0
"""Hypothesis strategies: valid configuration documents as users write them, and documents with something broken."""

from typing import Any

from hypothesis import strategies as st

from rdma_plugin.core.model import CharKind

_WORD = st.sampled_from(["ib0", "ib*", "ib[0-3]", "mlx5_0", "mlx5_?", "ens1f0np0", "eth0", "0", "a.b-c:d"])
_HEX = st.builds(str.format, st.sampled_from(["{:x}", "{:X}", "0x{:04x}", "0X{:X}"]), st.integers(0, 0xFFFF))
_PCI = st.builds(
    str.format,
    st.sampled_from(["{:02x}:00.0", "0000:{:02X}:1f.7", "10000:{:02x}:00.1", "1AC5:{:02x}:02.0"]),
    st.integers(0, 0xFF),
)
_LOW = st.integers(0, 300)
_RANGE = st.builds(lambda low, more: f"{low}-{low + more}" if more else str(low), _LOW, st.integers(0, 40))
_RANGES = st.one_of(st.just(""), st.lists(_RANGE, min_size=1, max_size=3).map(lambda parts: "#" + ",".join(parts)))
_LINK = st.sampled_from(["infiniband", "ib", "IB", "ether", "eth", "Ethernet", "RoCE", "unknown"])
_FLAG = st.booleans()


def _listed(entries: st.SearchStrategy[Any], min_size: int = 0) -> st.SearchStrategy[Any]:
    return st.lists(entries, min_size=min_size, max_size=3)


_ENTRIES: dict[str, st.SearchStrategy[Any]] = {
    "vendors": _HEX,
    "deviceIDs": _HEX,
    "drivers": _WORD,
    "ifNames": _WORD,
    "pfNames": st.builds(str.__add__, _WORD, _RANGES),
    "linkTypes": _LINK,
    "rootDevices": st.builds(str.__add__, _PCI, _RANGES),
    "rdmaDevices": _WORD,
    "pciAddresses": _PCI,
    "numaNodes": st.integers(0, 1023),
}


@st.composite
def selectors(draw: st.DrawFn, *, min_keys: int = 1) -> dict[str, Any]:
    """Draw selectors of which at least `min_keys` lists hold something."""
    names = draw(st.lists(st.sampled_from(sorted(_ENTRIES)), min_size=min_keys, max_size=4, unique=True))
    drawn: dict[str, Any] = {name: draw(_listed(_ENTRIES[name], 1)) for name in names}
    for name in draw(st.lists(st.sampled_from(sorted(_ENTRIES)), max_size=3)):
        drawn.setdefault(name, draw(st.sampled_from([None, []])))
    if "deviceIDs" in drawn and draw(st.booleans()):
        drawn["devices"] = drawn.pop("deviceIDs")
    return drawn


@st.composite
def resources(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid resource; its name is left to `documents`."""
    required = {
        "rdmaHcaMax": draw(st.integers(0, 100_000)),
        **draw(
            st.one_of(
                selectors().map(lambda drawn: {"selectors": drawn}),
                _listed(_WORD, 1).map(lambda names: {"devices": names}),
            )
        ),
    }
    optional = st.fixed_dictionaries(
        {},
        optional={
            "resourcePrefix": st.sampled_from(["rdma", "", "example.com", "example_prefix", None]),
            "exclude": st.one_of(st.none(), selectors(min_keys=0)),
            "charDevices": st.one_of(
                st.none(), st.permutations(list(CharKind)).map(lambda kinds: [str(kind) for kind in kinds])
            ),
            "allocation": st.sampled_from(["all", None]),
            "health": st.sampled_from(["any", "all", "present", None]),
            "topology": st.sampled_from(["auto", "off", None]),
            "env": _FLAG,
            "ncclEnv": _FLAG,
            "cdi": st.sampled_from([False, None]),
            "includeManagement": st.one_of(_FLAG, st.none()),
        },
    )
    return {**required, **draw(optional)}


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid configuration."""
    listed = draw(st.lists(resources(), min_size=1, max_size=3))
    named = [{"resourceName": f"hca_{i}", **resource} for i, resource in enumerate(listed)]
    interval = draw(st.one_of(st.just({}), st.integers(0, 86_400).map(lambda s: {"periodicUpdateInterval": s})))
    return {"configList": named, **interval}


_JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 2**70),
    st.floats(),
    st.text(max_size=8),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from(["vendors", "devices", "ifNames", "x"]), st.just([]), max_size=2),
)


@st.composite
def mutants(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a valid configuration with one to three places replaced, added or dropped; it may be valid still."""
    document = draw(documents())
    for _ in range(draw(st.integers(1, 3))):
        here: Any = document
        while True:
            places = list(range(len(here))) if isinstance(here, list) else list(here)
            if not places:
                break
            place = draw(st.sampled_from(places))
            if isinstance(here[place], dict | list) and here[place] and draw(st.integers(0, 3)):
                here = here[place]
                continue
            if draw(st.booleans()):
                here[place] = draw(_JUNK)
            elif isinstance(here, dict) and draw(st.booleans()):
                here[draw(st.one_of(st.text(max_size=6), st.sampled_from(["devices", "selectors", "Vendors"])))] = draw(
                    _JUNK
                )
            else:
                del here[place]
            break
    return document
