"""EngineOption: one configuration key with its type, default, documentation and older names.

Owner: any thread; immutable values. An option knows how to read a text into its type and which error to
raise. It never holds a value and never looks one up (settings.py does). Options are declared only in the
modules of `yarrow.runtime.config.options`; a raw key anywhere else is a mistake.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar, cast

import msgspec

from yarrow.common.values.quantities import Duration, MemorySize
from yarrow.common.values.secret_keys import REDACTED, is_secret_key, names_secret
from yarrow.common.values.value_types import PortRange, ValueType
from yarrow.runtime.config.values.errors import InvalidOptionValue

__all__ = [
    "Duration",
    "EngineOption",
    "MemorySize",
    "PortRange",
    "ValueType",
    "option",
    "optional",
]

T = TypeVar("T")


class EngineOption(msgspec.Struct, Generic[T], frozen=True):
    """An option with one key. `T` contains None when the option has no default.

    `fallback_keys` are other keys read, without a word, when the key is not set; `deprecated_keys` are
    older names, read with one warning. Both are tried in order, the option's own key first.
    """

    key: str
    type: ValueType[T]
    default: T
    doc: str
    fallback_keys: tuple[str, ...] = ()
    deprecated_keys: tuple[str, ...] = ()
    #: The rule when an option without default is not set; docs/config.md shows it.
    unset: str = ""
    #: The reason why the option does nothing in Yarrow: a warning tells it once. "" = the option has an
    #: effect.
    no_effect: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Every key under which the option may be set, in the order in which they are tried."""
        return (self.key, *self.fallback_keys, *self.deprecated_keys)

    @property
    def default_text(self) -> str:
        """The default as configuration writes it, or the rule without one."""
        return self.unset or "(none)" if self.default is None else self.type.render(self.default)

    def shown(self, text: str) -> str:
        """The text of a value as logs may show it: a map without the values of its secret inner keys."""
        if not self.type.is_map or not names_secret(text):
            return text
        try:
            entries: Any = self.type.parse(text)
            render: Any = self.type.render
            shown = {name: REDACTED if is_secret_key(name) else value for name, value in entries.items()}
            return str(render(shown))
        except ValueError:
            return REDACTED

    def parse(self, text: str, key: str | None = None, origin: str = "") -> T:
        """Reads `text`, set under `key` (one of `names`) at `origin`. Raises InvalidOptionValue."""
        try:
            return self.type.parse(text)
        except ValueError as error:
            used = key or self.key
            hidden = is_secret_key(used) or (self.type.is_map and names_secret(text))
            shown = REDACTED if hidden else repr(text)
            reason = "it cannot be read" if hidden else str(error)
            raise InvalidOptionValue(
                used, shown, reason, self.type.expected, self.type.example, origin
            ) from None


def option(
    key: str,
    type: ValueType[T],
    default: str,
    doc: str,
    *,
    fallback_keys: tuple[str, ...] = (),
    deprecated_keys: tuple[str, ...] = (),
    no_effect: str = "",
) -> EngineOption[T]:
    """An option with a default, which is written as the file would write it."""
    return EngineOption(
        key, type, type.parse(default), doc, fallback_keys, deprecated_keys, no_effect=no_effect
    )


def optional(
    key: str,
    type: ValueType[T],
    doc: str,
    *,
    unset: str = "",
    fallback_keys: tuple[str, ...] = (),
    deprecated_keys: tuple[str, ...] = (),
    no_effect: str = "",
) -> EngineOption[T | None]:
    """An option without default: None if it is not set; `unset` names the rule for that case."""
    widened = cast("ValueType[T | None]", type)  # its parse never returns None, its render never gets one
    return EngineOption(key, widened, None, doc, fallback_keys, deprecated_keys, unset, no_effect)
