"""The stored form and the order of the windows of keyed state: the form of one type of window.

A window is stored as a value that may be a key. Its position is a 64-bit integer, for Flink's windows the last time
that belongs to them. A place is both as bytes. Owner: any thread; pure. It must not know states or backends. Changing
the bytes of a place makes native checkpoints unreadable.
"""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any, Final, Generic, Protocol, TypeVar

import msgspec

from yarrow.common.serializer import TypeSerializer
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.keys import canonicalize, decode_key_from, encode_key
from yarrow.runtime.data.map_keys import map_key, shown_as

W = TypeVar("W")

_POSITION_BYTES: Final = 8
#: Added to a position, so that its unsigned bytes have its order.
_LEAST: Final = -(1 << 63)
_POSITIONS: Final = range(_LEAST, 1 << 63)


class EndingWindow(Protocol):
    """A window with a last time, as all of PyFlink's."""

    def max_timestamp(self) -> int:
        """The last time that belongs to the window."""
        ...


class WindowForm(msgspec.Struct, Generic[W], frozen=True):
    """The stored form and the order of windows of one type."""

    #: The declared type of the stored form.
    stored_type: TypeInformation
    #: A value that may be a key; different windows give different values.
    to_stored: Callable[[W], Any]
    #: The window of a stored value.
    from_stored: Callable[[Any], W]
    #: Windows are listed by rising positions, which are 64-bit integers.
    position: Callable[[W], int]

    @classmethod
    def of_serializer(
        cls, serializer: TypeSerializer[W], position: Callable[[W], int] | None = None
    ) -> WindowForm[W]:
        """Windows of a user's type: stored as the bytes of its serializer, listed by `max_timestamp` if not told."""

        def to_bytes(window: W) -> bytes:
            stream = BytesIO()
            serializer.serialize(window, stream)
            return stream.getvalue()

        return cls(
            Types.PRIMITIVE_ARRAY(Types.BYTE()),
            to_bytes,
            lambda data: serializer.deserialize(BytesIO(data)),
            position or last_time,
        )

    def stored(self, window: W) -> Any:
        """The stored form of a window, as a value that can be a key of a dict."""
        return map_key(self.to_stored(window))

    def window(self, stored: Any) -> W:
        """The window behind a key of a dict, or a decoded place."""
        return self.from_stored(shown_as(self.stored_type)(stored))

    def place(self, window: W) -> bytes:
        """Bytes that sort windows, delimit themselves and are different for each.

        Raises InvalidProgramError for a position that is none.
        """
        return place_start(self.position(window), window) + encode_key(canonicalize(self.to_stored(window)))


def place_start(position: int, window: Any = None) -> bytes:
    """The beginning of the places of all windows of that position; `window` is for the message."""
    if type(position) is not int or position not in _POSITIONS:
        raise InvalidProgramError(
            f"the window {window!r} has the position {position!r}; windows are listed by 64-bit integers, such as the "
            "last time that belongs to a window"
        )
    return (position - _LEAST).to_bytes(_POSITION_BYTES, "big")


def stored_window(data: bytes, start: int) -> tuple[Any, int]:
    """(stored form of a window, end of its place) of bytes with a place at `start`. Raises KeyDecodeError."""
    return decode_key_from(data, start + _POSITION_BYTES)


def last_time(window: Any) -> int:
    """The last time that belongs to a window."""
    ending: EndingWindow = window
    return ending.max_timestamp()
