"""The difference between what an enumerator knows and what it has found: decisions alone, without I/O and clock.

Owner: none (pure). A known thing that was not found has gone; whether the job fails then is left to the enumerator.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from _typeshed import SupportsRichComparison

T = TypeVar("T", bound="SupportsRichComparison")


def new(known: AbstractSet[T], found: AbstractSet[T]) -> list[T]:
    """Everything that was found and is not known, in its order."""
    return sorted(found - known)


def gone(known: AbstractSet[T], found: AbstractSet[T]) -> list[T]:
    """Everything that is known and was not found, in its order."""
    return sorted(known - found)
