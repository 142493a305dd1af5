"""JsonDocument: a JSON Schema as text with the schemas that it refers to, and the one way to its library.

Owner: any thread; documents do not change. The library jsonschema-rs is imported where a document is made. It never
fetches a schema from the network: what a schema refers to comes from the registry. Must not read messages.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final
from urllib.parse import urljoin

import msgspec

from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError

#: The place of a schema without an `$id`, so that relative references have a base. Nobody asks it.
_PLACE: Final = "http://schema.registry/schema.json"


def json_schema_library() -> Any:
    """Return the module jsonschema_rs. Raises UnsupportedFeatureError with the command that installs it."""
    try:
        return importlib.import_module("jsonschema_rs")
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError(
            f"JSON Schema needs jsonschema-rs, which cannot be imported here ({error}). Run"
            " `pip install 'yarrow[kafka]'` in the environment of the program and in that of the workers"
        ) from error


class JsonDocument:
    """A JSON Schema; made by `of`."""

    def __init__(self, root: Any, referred: Sequence[Any], registry: Any, place: str) -> None:
        #: The schema as JSON has it: a dict, or a bool.
        self.root = root
        #: Finds what references of the root name.
        self.resolver = registry.resolver(place)
        self._texts = (root, *referred)
        self._registry = registry
        self._place = place

    @staticmethod
    def of(text: str, referred: Mapping[str, str] | None = None) -> JsonDocument:
        """Return the document of a text and of the texts that it refers to by these names.

        Raises InvalidProgramError for a text that is no JSON, or that refers to others. What the words of the schema
        say is left to its shape and its validator.
        """
        library = json_schema_library()
        try:
            root = msgspec.json.decode(text)
            parts = {name: msgspec.json.decode(part) for name, part in (referred or {}).items()}
        except msgspec.DecodeError as error:
            raise InvalidProgramError(f"a JSON Schema is expected: {error}: {text[:120]!r}") from None
        if not isinstance(root, dict | bool):
            raise InvalidProgramError(
                f"a JSON Schema is an object, true or false; {text[:120]!r} is none of them"
            )
        place = _own_place(root, _PLACE)
        bases = {place, *(_own_place(part, place) for part in parts.values())}
        resources = {urljoin(base, name): part for name, part in parts.items() for base in bases}
        try:
            registry = library.Registry(
                [*resources.items(), (place, root)], draft=_draft_of(root), retriever=_refuse
            )
            return JsonDocument(root, list(parts.values()), registry, place)
        except (ValueError, library.ReferencingError) as error:
            raise InvalidProgramError(f"a JSON Schema cannot be used: {_first_line(error)}") from None

    def validator(self) -> Any:
        """Return the library's validator of values. Formats of texts are not checked, as JSON Schema has it.

        Raises InvalidProgramError for a schema that breaks its draft, or whose draft the library does not know.
        """
        library = json_schema_library()
        make = library.validator_for if _names_draft(self.root) else library.Draft7Validator
        try:
            return make(self.root, registry=self._registry, base_uri=self._place, offline=True)
        except (ValueError, library.ReferencingError) as error:
            raise InvalidProgramError(f"a JSON Schema cannot be used: {_first_line(error)}") from None

    def in_order(self, found: Any) -> Any:
        """Return what the resolver has found with its fields in the order of the text. The library sorts them."""
        return self._by_content.get(_sorted(found), found)

    @cached_property
    def _by_content(self) -> dict[bytes, Any]:
        return {_sorted(part): part for text in self._texts for part in _parts(text)}


def _sorted(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _parts(schema: Any) -> Iterator[Any]:
    if isinstance(schema, dict):
        yield schema
    if isinstance(schema, dict | list):
        for part in schema.values() if isinstance(schema, dict) else schema:
            yield from _parts(part)


def _names_draft(root: Any) -> bool:
    return isinstance(root, dict) and "$schema" in root


def _draft_of(root: Any) -> int:
    """The library's number of the draft of a schema, and of those that it refers to where they name none.

    Registries take a schema that names no draft as one of draft-07.
    """
    library = json_schema_library()
    if not _names_draft(root):
        return int(library.Draft7)
    return int(getattr(library, library.validator_cls_for(root).__name__.removesuffix("Validator")))


def _own_place(schema: Any, base: str) -> str:
    own = schema.get("$id", schema.get("id")) if isinstance(schema, dict) else None
    return urljoin(base, own).partition("#")[0] if isinstance(own, str) else base


def _refuse(uri: str) -> Any:
    raise ValueError(f"{uri} is none of the references that the registry has for this schema")


def _path_of(parts: Iterable[str | int]) -> str:
    """Return the path of a field as errors show it, such as `items[2].id`."""
    path = ""
    for part in parts:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else part
    return path


def problem_of(validator: Any, value: Any) -> str:
    """Return the first reason why a value is not valid, with the path of its field."""
    error = next(validator.iter_errors(value))
    place = _path_of(error.instance_path)
    return f"field {place!r}: {error.message}" if place else str(error.message)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
