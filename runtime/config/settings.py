"""Settings: the values of a configuration, read through typed options.

Owner: any thread; immutable. Settings are layered with `overlay` (file, then `-D`, then the program),
remember where each value was set, and are checked by `validate` of validation.py. They do no I/O: files.py reads
files. Values are kept as text and converted when they are read; a value is never changed on the way.
"""

from __future__ import annotations

import datetime
import enum
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, cast

from yarrow.common.values.quantities import Duration, MemorySize
from yarrow.common.values.quoted_lists import join_quoted
from yarrow.common.values.secret_keys import REDACTED, is_secret_key
from yarrow.common.values.value_types import PortRange
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import with_default_scheme
from yarrow.runtime.config.options import OPTION_OF_NAME, cluster
from yarrow.runtime.config.values.errors import ConfigError, InvalidOptionValue
from yarrow.runtime.config.values.option import EngineOption

T = TypeVar("T")


class ReadableConfig(Protocol):
    """The reading side of a configuration."""

    def get(self, option: EngineOption[T]) -> T:
        """The value of an option, else its default. Raises InvalidOptionValue."""
        ...

    def is_set(self, option: EngineOption[Any]) -> bool:
        """Whether the option or one of its other names is set."""
        ...


class Settings:
    """An immutable configuration.

    `values` maps keys to texts or to plain values (numbers, booleans, lists, maps, enums, timedeltas), which
    are turned into text; None leaves a key out. `origin` says in messages where the values were set, or maps
    each key to that. Raises ConfigError for a key or value of another type.
    """

    __slots__ = ("_origins", "_values")

    def __init__(
        self, values: Mapping[str, object] | None = None, origin: str | Mapping[str, str] = ""
    ) -> None:
        texts = {}
        for key, value in (values or {}).items():
            if not isinstance(key, str) or not key.strip():
                raise ConfigError(f"A configuration key must be a text that is not empty, not {key!r}.")
            if value is not None:
                texts[key.strip()] = value_to_text(key, value)
        if isinstance(origin, str):
            origins = dict.fromkeys(texts, origin) if origin else {}
        else:
            origins = {key: origin[key] for key in texts if key in origin}
        self._values: Mapping[str, str] = MappingProxyType(texts)
        self._origins: Mapping[str, str] = MappingProxyType(origins)

    def get(self, option: EngineOption[T]) -> T:
        """The value of an option, under its key or its other names in their order, else its default.

        Raises InvalidOptionValue naming the key under which it was set.
        """
        name = self.name_in_use(option)
        if option.type.is_map:
            entries = self._map_entries(option)
            if entries:
                return option.parse(self._with_entries(name, entries), origin=self.origin_of(name or ""))
        if name is None:
            return option.default
        value = option.parse(self._values[name], name, self.origin_of(name))
        if option.type.is_path and isinstance(value, str):
            return cast(T, self._in_file_system(option, name, value))
        return value

    def _in_file_system(self, option: EngineOption[Any], name: str, path: str) -> str:
        """A path of the configuration with the scheme that fs.default-scheme gives to plain ones."""
        try:
            return with_default_scheme(path, self.get(cluster.DEFAULT_SCHEME))
        except FileSystemError as error:
            raise InvalidOptionValue(
                name, repr(path), str(error), option.type.expected, option.type.example, self.origin_of(name)
            ) from None

    def is_set(self, option: EngineOption[Any]) -> bool:
        """Whether the option or one of its other names is set."""
        return self.name_in_use(option) is not None or (
            option.type.is_map and bool(self._map_entries(option))
        )

    def name_in_use(self, option: EngineOption[Any]) -> str | None:
        """The key under which the value of an option is found, or None when it is not set."""
        if option.key in self._values:
            return option.key
        for name in (*option.fallback_keys, *option.deprecated_keys):
            if name in self._values:
                return name
        return None

    def origin_of(self, key: str) -> str:
        """The place where a key was set; empty if unknown."""
        return self._origins.get(key, "")

    def text(self, key: str) -> str | None:
        """The value of a key as it was set; for keys of families, which have no option."""
        return self._values.get(key)

    def below(self, prefix: str) -> Mapping[str, str]:
        """Values of the keys that begin with `prefix`, which is cut off."""
        length = len(prefix)
        return {key[length:]: value for key, value in self._values.items() if key.startswith(prefix)}

    def overlay(self, other: Settings | Mapping[str, object], origin: str = "") -> Settings:
        """These settings overlaid by those of `other`; an older name replaces the newer one too.

        A whole map of `other` replaces a map's entries here as well, as Flink's Configuration does.
        """
        upper = other if isinstance(other, Settings) else Settings(other, origin)
        replaced = set(upper._values)
        for key in upper._values:
            option = OPTION_OF_NAME.get(key)
            if option is not None:
                # Names that lead to other options as well stay: `rest.port` says more than `rest.bind-port`.
                replaced.update(name for name in option.names if OPTION_OF_NAME.get(name) is option)
                if option.type.is_map:
                    replaced.update(f"{option.key}.{entry}" for entry in self._map_entries(option))
        kept = {key: value for key, value in self._values.items() if key not in replaced}
        return Settings(kept | dict(upper._values), dict(self._origins) | dict(upper._origins))

    def with_value(self, option: EngineOption[T], value: T) -> Settings:
        """These settings with one option set to `value`; None removes the option."""
        names = {name for name in option.names if OPTION_OF_NAME.get(name, option) is option}
        if option.type.is_map:
            names.update(f"{option.key}.{entry}" for entry in self._map_entries(option))
        without = Settings({k: v for k, v in self._values.items() if k not in names}, self._origins)
        return without if value is None else without.overlay({option.key: option.type.render(value)})

    def to_dict(self, redact: bool = True) -> dict[str, str]:
        """Keys and texts; unless `redact` is False values of secret keys, and of such in maps, are hidden."""
        return {key: _shown(key, value) if redact else value for key, value in self._values.items()}

    def _map_entries(self, option: EngineOption[Any]) -> Mapping[str, str]:
        return self.below(f"{option.key}.")

    def _with_entries(self, name: str | None, entries: Mapping[str, str]) -> str:
        parts = [f"{key}:{value}" for key, value in entries.items()]
        whole = [self._values[name]] if name is not None else []
        return ",".join([*whole, join_quoted(parts, ",")])

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Settings) and self._values == other._values

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __reduce__(self) -> tuple[type[Settings], tuple[dict[str, str], dict[str, str]]]:
        return Settings, (dict(self._values), dict(self._origins))

    def __repr__(self) -> str:
        return f"Settings({self.to_dict()!r})"


def value_to_text(key: str, value: object) -> str:
    """A plain value as configuration writes it. Raises ConfigError for a value of another type."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case enum.Enum():
            return value.name
        case int() | float() | MemorySize() | Duration() | PortRange():
            return str(value)
        case datetime.timedelta():
            microseconds = value // datetime.timedelta(microseconds=1)
            if microseconds >= 0:
                return str(Duration(microseconds * 1000))
        case list() | tuple():
            # Every list type reads a text in brackets, whatever its own separators are.
            return f"[{join_quoted([value_to_text(key, item) for item in value], ',')}]"
        case Mapping():
            return join_quoted([f"{name}:{value_to_text(key, item)}" for name, item in value.items()], ",")
    shown = REDACTED if is_secret_key(key) else repr(value)
    raise ConfigError(
        f"The value of {key} must be a text, number, boolean, list or map, not {shown} of type"
        f" {type(value).__name__}.",
        (key,),
    )


def _shown(key: str, text: str) -> str:
    if is_secret_key(key):
        return REDACTED
    option = OPTION_OF_NAME.get(key)
    return text if option is None else option.shown(text)
