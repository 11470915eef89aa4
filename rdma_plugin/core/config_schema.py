# SPDX-License-Identifier: Apache-2.0
"""The JSON Schema of the configuration file as users write it, old spellings and nulls included.

Made of the models' own schema; what is added here is what the models do before they look (`devices`, null as absent) and
the rule that a resource must select something. Whatever `config.parse` accepts, the schema accepts.
"""

from typing import Any

from rdma_plugin.core.config_models import Config, Resource, Selectors, keys

SCHEMA_ID = "rdma-plugin.config.schema.json"

_Schema = dict[str, Any]


def json_schema() -> dict[str, object]:
    """Return the schema, draft 2020-12; its `$id` is relative, so it names no host."""
    schema: _Schema = Config.model_json_schema(by_alias=True, mode="validation")
    definitions: _Schema = schema["$defs"]
    resource, selectors = definitions["Resource"], definitions["Selectors"]
    old_ids = {**selectors["properties"]["deviceIDs"], "deprecated": True, "description": "Old name of deviceIDs."}
    old_names = {
        **selectors["properties"]["ifNames"],
        "deprecated": True,
        "description": "Old name of selectors.ifNames; not together with selectors.",
    }
    selectors["properties"] = _in_order(Selectors, {**selectors["properties"], "devices": old_ids})
    selectors["not"] = {"allOf": [_holding("deviceIDs"), _holding("devices")]}
    resource["properties"] = _in_order(Resource, {**resource["properties"], "devices": old_names})
    selecting = {"anyOf": [_holding(key) for key in keys(Selectors)]}
    has_selectors = {"required": ["selectors"], "properties": {"selectors": {"type": "object", **selecting}}}
    resource["oneOf"] = [has_selectors, _holding("devices")]
    schema["properties"]["configList"]["minItems"] = 1
    for part in (schema, resource, selectors):
        _open_to_null(part)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": SCHEMA_ID,
        **_without_titles(schema),
        "title": "Configuration of rdma-plugin",
    }


def _in_order(model: type[Resource | Selectors], properties: _Schema) -> _Schema:
    return {key: properties[key] for key in keys(model)}


def _holding(key: str) -> _Schema:
    return {"required": [key], "properties": {key: {"type": "array", "minItems": 1}}}


def _open_to_null(part: _Schema) -> None:
    """Let the optional keys of an object be null."""
    for key, schema in part["properties"].items():
        if key in part.get("required", ()):
            continue
        if "enum" in schema:
            schema["enum"] = [*schema["enum"], None]
        elif "const" in schema:
            schema["enum"] = [schema.pop("const"), None]
        elif "type" in schema:
            schema["type"] = [schema["type"], "null"]
        elif "$ref" in schema:
            schema["anyOf"] = [{"$ref": schema.pop("$ref")}, {"type": "null"}]


def _without_titles(schema: Any) -> Any:  # noqa: ANN401 - any part of a schema
    if isinstance(schema, list):
        return [_without_titles(part) for part in schema]
    if isinstance(schema, dict):
        return {
            key: _without_titles(part) for key, part in schema.items() if key != "title" or not isinstance(part, str)
        }
    return schema
