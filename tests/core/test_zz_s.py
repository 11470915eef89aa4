# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema and the parser agree: what one accepts the other accepts, as far as a schema can say it."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator  # type: ignore[import-untyped] # comes without types

from rdma_plugin.core import config
from rdma_plugin.core.config_models import Config, Resource, Selectors, keys
from rdma_plugin.core.errors import ConfigError
from tests.core.corpus import HOSTILE, document
from tests.core.documents import documents, mutants

SCHEMA: dict[str, Any] = config.json_schema()
SAMPLES = sorted(Path(__file__).with_name("samples").glob("*.json"))
STRUCTURAL = [
    name
    for name in HOSTILE
    if name.startswith(("config-list-", "selectors-", "vendors-", "exclude-", "env-", "char-", "cdi-", "allocation-"))
] + ["no-config-list", "other-case", "unknown-key", "name-null", "name-number", "name-empty", "max-text", "max-boolean",
     "max-negative", "max-list", "interval-text", "mebibyte-name", "word", "list", "int64-overflow", "huge-exponent"]  # fmt: skip


def schema_accepts(value: object) -> bool:
    """Return whether the schema accepts a document."""
    return bool(Draft202012Validator(SCHEMA).is_valid(value))


def parser_accepts(value: object) -> bool:
    """Return whether the parser accepts a document; nothing but ConfigError may come out of it."""
    try:
        config.parse(json.dumps(value), "test")
    except ConfigError:
        return False
    return True


def test_schema_is_one() -> None:
    """A valid draft 2020-12 schema with a relative id, that JSON can carry."""
    Draft202012Validator.check_schema(SCHEMA)
    assert json.loads(json.dumps(SCHEMA)) == SCHEMA
    assert SCHEMA["$id"] == "rdma-plugin.config.schema.json"


def test_every_key_is_described() -> None:
    """The schema knows the keys of the parser, no others, and describes each."""
    for part, model in (
        (SCHEMA, Config),
        (SCHEMA["$defs"]["Resource"], Resource),
        (SCHEMA["$defs"]["Selectors"], Selectors),
    ):
        assert part["additionalProperties"] is False
        assert tuple(part["properties"]) == keys(model)
        for key, schema in part["properties"].items():
            assert schema.get("description"), key


def test_examples_are_valid() -> None:
    """Each example of a key is accepted in its place."""
    for key, schema in SCHEMA["$defs"]["Selectors"]["properties"].items():
        for example in schema["examples"]:
            assert parser_accepts(json.loads(document(selectors={key: example}))), key
    for key, schema in SCHEMA["$defs"]["Resource"]["properties"].items():
        for example in schema.get("examples", []):
            changes = {key: example} if key != "devices" else {key: example, "selectors": {}}
            assert parser_accepts(json.loads(document(**changes))), key


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_samples_are_valid(path: Path) -> None:
    """Each sample that loads is valid by the schema."""
    assert schema_accepts(json.loads(path.read_text()))


@pytest.mark.parametrize("name", STRUCTURAL)
def test_structural_faults_are_invalid(name: str) -> None:
    """Wrong types, missing and unknown keys, empty selectors: both refuse."""
    assert not schema_accepts(json.loads(HOSTILE[name]))
    with pytest.raises(ConfigError):
        config.parse(HOSTILE[name], "test")


@pytest.mark.parametrize(
    "changes",
    [
        {"devices": ["ib0"]},
        {"selectors": {"deviceIDs": ["1021"], "devices": ["1017"]}},
        {"selectors": {"linkTypes": ["infinband"]}},
        {"selectors": {"vendors": ["mellanox"]}},
        {"selectors": {"pciAddresses": ["18:00"]}},
        {"selectors": {"pfNames": ["a#1#2"]}},
        {"selectors": {"ifNames": ["a b"]}},
        {"resourcePrefix": "Example"},
        {"resourceName": "a/b"},
        {"health": "dead"},
    ],
)
def test_values_that_a_schema_can_refuse(changes: dict[str, Any]) -> None:
    """Patterns and enums catch in an editor what the parser would refuse."""
    value = json.loads(document(**changes))
    assert not parser_accepts(value)
    assert not schema_accepts(value)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(documents())
def test_valid_documents_are_valid_for_both(value: dict[str, Any]) -> None:
    """Every document of valid parts loads and is valid by the schema."""
    config.parse(json.dumps(value), "test")
    assert schema_accepts(value)


@pytest.mark.slow
@settings(max_examples=3000, deadline=None)
@given(mutants())
def test_schema_is_never_narrower(value: dict[str, Any]) -> None:
    """What the parser accepts of a broken document, the schema accepts; nothing but ConfigError comes out."""
    assert schema_accepts(value) or not parser_accepts(value)
