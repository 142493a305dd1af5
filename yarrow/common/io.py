"""InputFormat: the older interface for reading bounded data in splits.

An interface alone, called by the thread that owns the task. New connectors implement the Source interface of
`yarrow.datastream.connectors.base`, whose splits can be remembered by checkpoints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Generic, TypeVar

__all__ = ["InputFormat"]

S = TypeVar("S")
T = TypeVar("T")


class InputFormat(ABC, Generic[S, T]):
    """Cuts its data into splits of type S and reads records of type T from one split at a time."""

    @abstractmethod
    def create_input_splits(self, min_num_splits: int) -> Sequence[S]:
        """Return the splits, at least `min_num_splits` of them where the data allows it."""

    @abstractmethod
    def open(self, split: S) -> None:
        """Begin to read a split."""

    @abstractmethod
    def reached_end(self) -> bool:
        """Whether the split has no further record."""

    @abstractmethod
    def next_record(self) -> T:
        """Return the next record of the split."""

    @abstractmethod
    def close(self) -> None:
        """End the reading of a split and release what `open` acquired."""
