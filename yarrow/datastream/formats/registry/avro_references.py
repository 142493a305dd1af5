"""Schemas of Avro that refer to others: made one schema, with each named type at the place that first uses it.

Owner: any thread; pure. Works on the JSON of schemas. Source of the rules of names: the specification of Avro 1.12.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from yarrow.datastream.formats.avro_rules import PRIMITIVES

_NAMED: Final = frozenset({"record", "error", "enum", "fixed"})


def with_references(text: str, referred: Mapping[str, str]) -> str:
    """Return one schema for a text and the texts of the named types that it refers to.

    Raises ValueError for a text that is no JSON.
    """
    if not referred:
        return text
    types = {name: json.loads(content) for name, content in referred.items()}
    return json.dumps(_Inlining(types).schema(json.loads(text), ""))


class _Inlining:
    """One walk through a schema. Each referred type is put in once."""

    def __init__(self, types: dict[str, Any]) -> None:
        self._types = types

    def schema(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, str):
            return self._use(schema, namespace)
        if isinstance(schema, list):
            return [self.schema(branch, namespace) for branch in schema]
        if not isinstance(schema, dict):
            return schema
        kind = schema.get("type")
        inner = namespace
        if kind in _NAMED:
            name = str(schema.get("name", ""))
            inner = name.rpartition(".")[0] or str(schema.get("namespace", namespace))
        parts = {
            key: self.schema(value, inner)
            for key, value in schema.items()
            if key in ("items", "values") or (key == "type" and kind not in _NAMED)
        }
        if "fields" in schema:
            parts["fields"] = [
                {**field, "type": self.schema(field.get("type"), inner)} for field in schema["fields"]
            ]
        return {**schema, **parts}

    def _use(self, name: str, namespace: str) -> Any:
        if name in PRIMITIVES:
            return name
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        for known in (full, name):
            found = self._types.pop(known, None)
            if found is not None:
                # A type without a namespace would take that of the place where it stands.
                has_own = not isinstance(found, dict) or "namespace" in found or "." in found.get("name", "")
                return self.schema(found if has_own else {**found, "namespace": ""}, "")
        return name
