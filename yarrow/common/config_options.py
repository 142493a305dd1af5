"""ConfigOption: one key of the configuration with its type, default and meaning.

`ConfigOptions.key("rest.port").int_type().default_value(8081)` makes one. Options are immutable values,
declared once as constants of an options module and read with `Configuration.get`. This module holds no keys.
A ValueType reads and writes the value: the same one as in the engine's own options, so that both read the same texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Generic, TypeVar

from yarrow.common.values.quantities import Duration, MemorySize
from yarrow.common.values.quoted_lists import join_quoted
from yarrow.common.values.secret_keys import REDACTED, shown_value
from yarrow.common.values.value_types import (
    BOOLEAN,
    DURATION,
    INTEGER,
    MAP,
    MEMORY_SIZE,
    NUMBER,
    TEXT,
    ValueType,
    enum_of,
    list_of,
)

__all__ = ["ConfigOption", "ConfigOptions", "text_of"]

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


class ConfigOption(Generic[T]):
    """A key with the type of its value.

    `parse` turns what a file or a program gave into a value and raises ValueError for what it cannot read;
    `render` is its inverse.
    """

    __slots__ = ("_default", "_description", "_fallback_keys", "_key", "_type", "_type_name")

    def __init__(self, key: str, type_name: str, type: ValueType[T], default: T | None = None) -> None:
        self._key = key
        self._type_name = type_name
        self._type = type
        self._default = default
        self._description = ""
        self._fallback_keys: tuple[str, ...] = ()

    def with_description(self, description: str) -> ConfigOption[T]:
        """Return this option with a sentence that says what it does.

        The documentation is generated from it.
        """
        option = self._copy()
        option._description = description
        return option

    def with_fallback_keys(self, *keys: str) -> ConfigOption[T]:
        """Return this option with other keys to look up, in order, where the key itself is not set."""
        option = self._copy()
        option._fallback_keys = keys
        return option

    def key(self) -> str:
        """Return the key."""
        return self._key

    def fallback_keys(self) -> tuple[str, ...]:
        """Return the keys that are looked up where the key itself is not set."""
        return self._fallback_keys

    def has_default_value(self) -> bool:
        """Whether there is a default."""
        return self._default is not None

    def default_value(self) -> T | None:
        """Return the default, or None."""
        return self._default

    def description(self) -> str:
        """Return the sentence that says what the option does."""
        return self._description

    def type_name(self) -> str:
        """Return the type as the documentation names it."""
        return self._type_name

    def parse(self, value: Any) -> T:
        """Return the typed value of the text or object that a file or a program gave.

        Raises ValueError naming key, value and expected type.
        """
        try:
            return self._type.parse(text_of(value))
        except ValueError as error:
            shown = shown_value(self._key, value)
            reason = "it cannot be read" if shown == REDACTED else str(error)
            raise ValueError(
                f"{self._key}: {shown} is no {self._type_name} ({reason}): expected {self._type.expected}"
            ) from None

    def render(self, value: T) -> str:
        """Return the text that stands for a value in a file."""
        return self._type.render(value)

    def _copy(self) -> ConfigOption[T]:
        option = ConfigOption(self._key, self._type_name, self._type, self._default)
        option._description = self._description
        option._fallback_keys = self._fallback_keys
        return option

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ConfigOption) and (
            self._key,
            self._type_name,
            self._default,
            self._fallback_keys,
        ) == (other._key, other._type_name, other._default, other._fallback_keys)

    def __hash__(self) -> int:
        return hash((self._key, self._type_name))

    def __repr__(self) -> str:
        return f"ConfigOption({self._key}: {self._type_name}, default {self._default!r})"


class ConfigOptions:
    """The beginning of a ConfigOption."""

    class OptionBuilder:
        """A key that has no type yet."""

        def __init__(self, key: str) -> None:
            self._key = key

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """Values are true or false."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Boolean", BOOLEAN)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Values are whole numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Integer", INTEGER)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Values are whole numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Long", INTEGER)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Values are finite numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Float", NUMBER)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Values are finite numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Double", NUMBER)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Values are text."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "String", TEXT)

        def duration_type(self) -> ConfigOptions.TypedConfigOptionBuilder[Duration]:
            """Values are lengths of time such as `10 s`."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Duration", DURATION)

        def memory_type(self) -> ConfigOptions.TypedConfigOptionBuilder[MemorySize]:
            """Values are amounts of memory such as `512 mb`."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "MemorySize", MEMORY_SIZE)

        def enum_type(self, enum_class: type[E]) -> ConfigOptions.TypedConfigOptionBuilder[E]:
            """Values are names of members, in any case, with `-` for `_` if wanted."""
            names = {member: member.name for member in enum_class}
            return ConfigOptions.TypedConfigOptionBuilder(
                self._key, f"Enum ({' | '.join(names.values())})", enum_of(enum_class, names)
            )

        def map_type(self) -> ConfigOptions.TypedConfigOptionBuilder[Mapping[str, str]]:
            """Values are `key:value` pairs separated by commas; a pair that holds a comma stands in quotes."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Map", MAP)

    class TypedConfigOptionBuilder(Generic[T]):
        """A key that has a type and no default yet."""

        def __init__(self, key: str, type_name: str, type: ValueType[T]) -> None:
            self._key = key
            self._type_name = type_name
            self._type = type

        def as_list(self) -> ConfigOptions.TypedConfigOptionBuilder[list[T]]:
            """Values are lists, written with `;` between the elements, or as YAML writes them: `[a, b]`."""
            tuples = list_of(self._type)
            lists: ValueType[list[T]] = ValueType(
                "List",
                tuples.expected,
                tuples.example,
                lambda text: [*tuples.parse(text)],
                lambda items: tuples.render(tuple(items)),
            )
            return ConfigOptions.TypedConfigOptionBuilder(self._key, f"List<{self._type_name}>", lists)

        def default_value(self, value: T) -> ConfigOption[T]:
            """Return the option with this default."""
            return ConfigOption(self._key, self._type_name, self._type, value)

        def no_default_value(self) -> ConfigOption[T]:
            """Return the option; without a value in the configuration it is None."""
            return ConfigOption(self._key, self._type_name, self._type)

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Begin an option with this key."""
        return ConfigOptions.OptionBuilder(key)


def text_of(value: Any) -> str:
    """Return the text of a value as configuration files write it: booleans in lower case, enums by name."""
    match value:
        case bool():
            return "true" if value else "false"
        case Enum():
            return value.name
        case list() | tuple():
            # Every list type reads a text in brackets, whatever its own separators are.
            return f"[{join_quoted([text_of(item) for item in value], ',')}]"
        case Mapping():
            return join_quoted([f"{key}:{text_of(item)}" for key, item in value.items()], ",")
    return str(value)
