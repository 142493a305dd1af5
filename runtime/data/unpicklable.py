"""The part of a value that keeps it from being pickled or copied.

Owner: the thread that failed to pickle or to copy; pure but for users' `__reduce__`. Only for the text of an error: it
tries part after part.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from yarrow.common.types import Row
from yarrow.runtime.data.plain_classes import fields_of_plain_class

_MAX_DEPTH: Final = 16


def unpicklable_member(value: Any) -> tuple[str, Any]:
    """The place of the deepest part that cannot be pickled, as Python writes it behind the value, and that part.

    The place is empty where it is the value itself.
    """
    return bad_member(value, _pickles)


def bad_member(value: Any, is_good: Callable[[Any], bool]) -> tuple[str, Any]:
    """The place of the deepest part that is not good, and that part; see `unpicklable_member`."""
    place = ""
    for _ in range(_MAX_DEPTH):
        found = next(((at, part) for at, part in _parts(value) if not is_good(part)), None)
        if found is None:
            break
        place, value = place + found[0], found[1]
    return place, value


def _pickles(value: Any) -> bool:
    try:
        pickle.dumps(value, 5)
    except Exception:  # a user's __reduce__ may raise anything
        return False
    return True


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    kind = type(value)
    if kind is Row:
        names = value.get_field_names()
        for position, item in enumerate(value):
            yield f".{names[position]}" if names else f"[{position}]", item
    elif kind is dict:
        for key, item in value.items():
            yield f" key {key!r}", key
            yield f"[{key!r}]", item
    elif kind in (set, frozenset):
        yield from ((f" element {item!r}", item) for item in value)
    elif kind in (tuple, list, deque) or (issubclass(kind, tuple) and hasattr(kind, "_fields")):
        yield from ((f"[{position}]", item) for position, item in enumerate(value))
    elif not isinstance(value, type) and (fields := fields_of_plain_class(kind)) is not None:
        slots, has_dict = fields
        names = [*slots, *(vars(value) if has_dict else ())]
        yield from ((f".{name}", getattr(value, name)) for name in names if hasattr(value, name))
