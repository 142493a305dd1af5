"""ConfigOption: one key of the configuration with its type, default and meaning.

`ConfigOptions.key("rest.port").int_type().default_value(8081)` makes one. Options are immutable values,
declared once as constants of an options module and read with `Configuration.get`. This module holds no keys.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any, Generic, TypeVar

from yarrow.common.memory_size import MemorySize
from yarrow.common.quoted_lists import join_quoted, split_quoted
from yarrow.common.time import Duration

__all__ = ["ConfigOption", "ConfigOptions"]

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


class ConfigOption(Generic[T]):
    """A key with the type of its value.

    `parse` turns what a file or a program gave into a value and raises ValueError for what it cannot read;
    `render` is its inverse.
    """

    __slots__ = ("_default", "_description", "_fallback_keys", "_key", "_parse", "_render", "_type_name")

    def __init__(
        self,
        key: str,
        type_name: str,
        parse: Callable[[Any], T],
        render: Callable[[T], str] = str,
        default: T | None = None,
    ) -> None:
        self._key = key
        self._type_name = type_name
        self._parse = parse
        self._render = render
        self._default = default
        self._description = ""
        self._fallback_keys: tuple[str, ...] = ()

    def with_description(self, description: str) -> ConfigOption[T]:
        """Return this option with a sentence that says what it does;

        the documentation is generated from it.
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
        """Return the typed value of what a file or a program gave.

        Raises ValueError naming key, value and expected type.
        """
        try:
            return self._parse(value)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{self._key}: {value!r} is no {self._type_name} ({error})") from error

    def render(self, value: T) -> str:
        """Return the text that stands for a value in a file."""
        return self._render(value)

    def _copy(self) -> ConfigOption[T]:
        option = ConfigOption(self._key, self._type_name, self._parse, self._render, self._default)
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
    """Where the making of a ConfigOption begins."""

    class OptionBuilder:
        """A key that has no type yet."""

        def __init__(self, key: str) -> None:
            self._key = key

        def boolean_type(self) -> ConfigOptions.TypedConfigOptionBuilder[bool]:
            """Values are true or false."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Boolean", parse_boolean, render_scalar)

        def int_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Values are whole numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Integer", parse_integer)

        def long_type(self) -> ConfigOptions.TypedConfigOptionBuilder[int]:
            """Values are whole numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Long", parse_integer)

        def float_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Values are numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Float", float)

        def double_type(self) -> ConfigOptions.TypedConfigOptionBuilder[float]:
            """Values are numbers."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Double", float)

        def string_type(self) -> ConfigOptions.TypedConfigOptionBuilder[str]:
            """Values are text."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "String", render_scalar)

        def duration_type(self) -> ConfigOptions.TypedConfigOptionBuilder[Duration]:
            """Values are lengths of time such as `10 s`."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Duration", _parse_duration)

        def memory_type(self) -> ConfigOptions.TypedConfigOptionBuilder[MemorySize]:
            """Values are amounts of memory such as `512 mb`."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "MemorySize", _parse_memory)

        def enum_type(self, enum_class: type[E]) -> ConfigOptions.TypedConfigOptionBuilder[E]:
            """Values are names of members, in any case, with `-` for `_` if wanted."""
            names = " | ".join(member.name for member in enum_class)

            def parse(value: Any) -> E:
                return value if isinstance(value, enum_class) else enum_class[_member_name(value)]

            return ConfigOptions.TypedConfigOptionBuilder(
                self._key, f"Enum ({names})", parse, lambda e: e.name
            )

        def map_type(self) -> ConfigOptions.TypedConfigOptionBuilder[dict[str, str]]:
            """Values are `key:value` pairs separated by commas; a pair that holds a comma stands in quotes."""
            return ConfigOptions.TypedConfigOptionBuilder(self._key, "Map", _parse_map, render_map)

    class TypedConfigOptionBuilder(Generic[T]):
        """A key that has a type and no default yet."""

        def __init__(
            self, key: str, type_name: str, parse: Callable[[Any], T], render: Callable[[T], str] = str
        ) -> None:
            self._key = key
            self._type_name = type_name
            self._parse = parse
            self._render = render

        def as_list(self) -> ConfigOptions.TypedConfigOptionBuilder[list[T]]:
            """Values are lists, written with `;` between the elements."""
            parse, render = self._parse, self._render

            def parse_list(value: Any) -> list[T]:
                items = value if isinstance(value, list | tuple) else str(value).split(";")
                return [
                    parse(item.strip() if isinstance(item, str) else item) for item in items if item != ""
                ]

            return ConfigOptions.TypedConfigOptionBuilder(
                self._key, f"List<{self._type_name}>", parse_list, lambda items: ";".join(map(render, items))
            )

        def default_value(self, value: T) -> ConfigOption[T]:
            """Return the option with this default."""
            return ConfigOption(self._key, self._type_name, self._parse, self._render, value)

        def no_default_value(self) -> ConfigOption[T]:
            """Return the option; without a value in the configuration it is None."""
            return ConfigOption(self._key, self._type_name, self._parse, self._render)

    @staticmethod
    def key(key: str) -> ConfigOptions.OptionBuilder:
        """Begin an option with this key."""
        return ConfigOptions.OptionBuilder(key)


def parse_boolean(value: Any) -> bool:
    """Read a boolean. Raises ValueError for anything but a bool or the words true and false in any case."""
    if isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("true", "false"):
        return word == "true"
    raise ValueError("expected true or false")


def parse_integer(value: Any) -> int:
    """Read a whole number. Raises ValueError for anything else, also for a number with a fraction."""
    if isinstance(value, bool) or (isinstance(value, float) and not value.is_integer()):
        raise ValueError("expected a whole number")
    return int(value)


def render_scalar(value: Any) -> str:
    """Return the text of a value as configuration files write it: booleans in lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _parse_duration(value: Any) -> Duration:
    return value if isinstance(value, Duration) else Duration.parse(str(value))


def _parse_memory(value: Any) -> MemorySize:
    return value if isinstance(value, MemorySize) else MemorySize.parse(str(value))


def _member_name(value: Any) -> str:
    return str(value).strip().upper().replace("-", "_")


def _parse_map(value: Any) -> dict[str, str]:
    if isinstance(value, dict):
        return {str(key): str(item) for key, item in value.items()}
    pairs: dict[str, str] = {}
    for part in split_quoted(str(value), ","):
        key, colon, item = part.partition(":")
        if not colon:
            raise ValueError(f"expected key:value, found {part!r}")
        pairs[key.strip()] = item.strip()
    return pairs


def render_map(value: dict[str, str]) -> str:
    """Return the text of a map as configuration files write it."""
    return join_quoted([f"{key}:{render_scalar(item)}" for key, item in value.items()], ",")
