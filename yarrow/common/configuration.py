"""Configuration: the keys and values a program or a file sets.

A mutable map owned by the thread that builds the job; the runtime works on copies. Values keep the type they
were set with and are converted where they are read. It does not know which keys exist: the options modules
do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, TypeVar, overload

from yarrow.common.config_options import ConfigOption, text_of
from yarrow.common.values.quoted_lists import join_quoted, split_quoted
from yarrow.common.values.secret_keys import REDACTED, is_secret_key, names_secret, shown_value
from yarrow.common.values.value_types import BOOLEAN, INTEGER, NUMBER, ValueType

__all__ = ["Configuration"]

T = TypeVar("T")
D = TypeVar("D")

# The class has a method `set`, which hides the built-in inside it.
_Keys: TypeAlias = set[str]


class Configuration:
    """Keys with values.

    Getters convert to the type of the method and raise ValueError naming key and value where
    that is impossible."""

    __slots__ = ("_values",)

    def __init__(self, other: Configuration | None = None) -> None:
        self._values: dict[str, Any] = {} if other is None else dict(other._values)

    @classmethod
    def from_dict(cls, map: Mapping[str, Any]) -> Configuration:
        """Return a Configuration with the keys and values of `map`."""
        configuration = cls()
        configuration._values.update(map)
        return configuration

    @staticmethod
    def parse_list_value(value: str | None) -> list[str]:
        """Return the elements of a list written as `a;b`, as `[a, b]` or as lines `- a` and `- b`; none of None."""
        text = "" if value is None else value.strip()
        lines = text.splitlines()
        if lines and all(
            line.strip() == "-" or line.lstrip().startswith("- ") for line in lines if line.strip()
        ):
            items = [line.strip()[1:].strip().strip("'\"") for line in lines]
        elif text.startswith("[") and text.endswith("]"):
            items = [item.strip().strip("'\"") for item in text[1:-1].split(",")]
        else:
            items = [item.strip() for item in text.split(";")]
        return [item for item in items if item]

    def get_string(self, key: str, default_value: D) -> str | D:
        """Return the value as text, or the default."""
        return text_of(self._values[key]) if key in self._values else default_value

    def set_string(self, key: str, value: str) -> Configuration:
        """Set the value."""
        return self._set(key, value, str)

    def get_integer(self, key: str, default_value: D) -> int | D:
        """Return the value as a whole number, or the default."""
        return self._convert(key, INTEGER, "whole number") if key in self._values else default_value

    def set_integer(self, key: str, value: int) -> Configuration:
        """Set the value."""
        return self._set(key, value, int)

    def get_boolean(self, key: str, default_value: D) -> bool | D:
        """Return the value as a boolean, or the default."""
        return self._convert(key, BOOLEAN, "boolean") if key in self._values else default_value

    def set_boolean(self, key: str, value: bool) -> Configuration:
        """Set the value."""
        return self._set(key, value, bool)

    def get_float(self, key: str, default_value: D) -> float | D:
        """Return the value as a number, or the default."""
        return self._convert(key, NUMBER, "number") if key in self._values else default_value

    def set_float(self, key: str, value: float) -> Configuration:
        """Set the value."""
        return self._set(key, float(value), float)

    def get_bytearray(self, key: str, default_value: D) -> bytearray | D:
        """Return the value as a new bytearray, or the default."""
        if key not in self._values:
            return default_value
        value = self._values[key]
        if not isinstance(value, bytes | bytearray):
            raise ValueError(f"{key}: {value!r} is no bytearray; it was not set with set_bytearray")
        return bytearray(value)

    def set_bytearray(self, key: str, value: bytearray) -> Configuration:
        """Set the value to a copy of `value`."""
        return self._set(key, bytes(value), bytes)

    @overload
    def get(self, option: ConfigOption[T]) -> T | None: ...
    @overload
    def get(self, option: ConfigOption[T], default_value: T) -> T: ...
    def get(self, option: ConfigOption[T], default_value: T | None = None) -> T | None:
        """Return the typed value of an option.

        Looked up are its key, its fallback keys, `default_value`, then its own default.
        """
        for key in (option.key(), *option.fallback_keys()):
            if key in self._values:
                return option.parse(self._values[key])
        return option.default_value() if default_value is None else default_value

    def set(self, option: ConfigOption[T], value: T) -> Configuration:
        """Set an option to a value of its type."""
        self._values[option.key()] = option.render(option.parse(value))
        return self

    def contains(self, option: ConfigOption[Any]) -> bool:
        """Whether an option or one of its fallback keys is set."""
        return any(key in self._values for key in (option.key(), *option.fallback_keys()))

    def key_set(self) -> _Keys:
        """Return the keys that are set."""
        return {*self._values}

    def contains_key(self, key: str) -> bool:
        """Whether a key is set."""
        return key in self._values

    def add_all(self, other: Configuration, prefix: str | None = None) -> Configuration:
        """Set everything that `other` has, with `prefix` before each key."""
        self._values.update({f"{prefix or ''}{key}": value for key, value in other._values.items()})
        return self

    def add_all_to_dict(self, target_dict: dict[str, Any]) -> None:
        """Put all keys and values, as they were set, into `target_dict`."""
        target_dict.update(self._values)

    def remove_config(self, key: str) -> bool:
        """Remove a key and say whether it was set."""
        if key not in self._values:
            return False
        del self._values[key]
        return True

    def to_dict(self) -> dict[str, str]:
        """Return all keys with their values as text."""
        return {key: text_of(value) for key, value in self._values.items()}

    def _set(self, key: str, value: Any, expected: type) -> Configuration:
        if not isinstance(key, str):
            raise TypeError(f"a configuration key must be a string, not {key!r}")
        if not isinstance(value, expected):
            raise TypeError(f"{key}: expected {expected.__name__}, got {value!r}")
        self._values[key] = value
        return self

    def _convert(self, key: str, type: ValueType[T], expected: str) -> T:
        try:
            return type.parse(text_of(self._values[key]))
        except ValueError:
            raise ValueError(f"{key}: {shown_value(key, self._values[key])} is no {expected}") from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Configuration) and self.to_dict() == other.to_dict()

    def __hash__(self) -> int:
        """The hash of the present keys and values: it changes with them, as in Flink."""
        return hash(frozenset(self.to_dict().items()))

    def __str__(self) -> str:
        """Return the keys and values as Flink writes them, `{a=1, b=2}`, with the values of secrets hidden."""
        return f"{{{', '.join(f'{key}={value}' for key, value in self._shown().items())}}}"

    def __repr__(self) -> str:
        return f"Configuration({self._shown()!r})"

    def _shown(self) -> dict[str, str]:
        return {
            key: REDACTED if is_secret_key(key) else _without_secrets(value)
            for key, value in self.to_dict().items()
        }


def _without_secrets(text: str) -> str:
    """A value that may be a map, as global job parameters are, without what is secret by its inner key."""
    if not names_secret(text):
        return text
    try:
        entries = [entry.partition(":") for entry in split_quoted(text, ",")]
    except ValueError:
        return REDACTED
    if not any(colon and is_secret_key(key) for key, colon, _ in entries):
        return text
    shown = [
        f"{key}{colon}{REDACTED if colon and is_secret_key(key) else value}" for key, colon, value in entries
    ]
    return join_quoted(shown, ",")
