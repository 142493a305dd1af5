"""The difference between what an enumerator knows and what it has found: decisions alone, without I/O and clock.

Owner: none (pure). A known thing that was not found has gone; whether the job fails then is left to the enumerator.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Any, TypeVar

T = TypeVar("T")


def new(known: AbstractSet[T], found: AbstractSet[T]) -> list[T]:
    """Everything that was found and is not known, in its order."""
    return _ordered(found - known)


def gone(known: AbstractSet[T], found: AbstractSet[T]) -> list[T]:
    """Everything that is known and was not found, in its order."""
    return _ordered(known - found)


def named(things: Iterable[object]) -> str:
    """The names of things, as messages about them have them."""
    return ", ".join(map(str, things))


def _ordered(things: AbstractSet[Any]) -> list[Any]:
    return sorted(things)
