# SPDX-License-Identifier: Apache-2.0
"""What holds for every configuration: order of keys doesn't matter, values are in normal form, faults are readable."""

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdma_plugin.core import config, parse
from rdma_plugin.core.config import Selectors
from rdma_plugin.core.errors import ConfigError, Fault
from tests.core.documents import documents, mutants


def _shuffled(value: Any, order: random.Random) -> Any:
    if isinstance(value, dict):
        items = list(value.items())
        order.shuffle(items)
        return {key: _shuffled(inner, order) for key, inner in items}
    return [_shuffled(inner, order) for inner in value] if isinstance(value, list) else value


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(documents(), st.randoms(use_true_random=False))
def test_order_of_keys_is_free(document: dict[str, Any], order: random.Random) -> None:
    """The same keys in another order are the same configuration."""
    text = json.dumps(_shuffled(document, order))
    assert config.parse(text, "test") == config.parse(json.dumps(document), "test")


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(documents())
def test_values_are_in_normal_form(document: dict[str, Any]) -> None:
    """Ids, addresses and ranges come out in the spelling that the kernel uses."""
    for resource in config.parse(json.dumps(document), "test").config_list:
        for asked in (resource.selectors, resource.exclude or Selectors()):
            assert all(parse.hex_id(found) == found for found in (*asked.vendors, *asked.device_ids))
            assert all(parse.pci_address(found) == found for found in asked.pci_addresses)
            assert all(parse.pci_address(entry.name) == entry.name for entry in asked.root_devices)
            assert all(low <= high for entry in asked.pf_names for low, high in entry.indices or ())
        assert resource.selectors != Selectors()


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(mutants())
def test_faults_are_readable_and_in_order(document: dict[str, Any]) -> None:
    """Each fault of a broken document is one printable line with a path and a sentence; none is said twice."""
    for fault in _faults(document):
        assert fault.where
        assert fault.what
        assert f"{fault.where}: {fault.what}".isprintable()
        assert len(fault.what) < 400
    assert len(set(_faults(document))) == len(_faults(document))


def _faults(document: dict[str, Any]) -> tuple[Fault, ...]:
    try:
        config.parse(json.dumps(document), "test")
    except ConfigError as err:
        return err.faults
    return ()
