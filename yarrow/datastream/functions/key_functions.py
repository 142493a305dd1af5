"""Functions that place a record: its key, and the subtask of a key.

Interfaces alone; called by the thread that owns the sending task. They must give the same answer for the same record
in every process, or records of one key meet different state.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Generic, TypeVar

from yarrow.datastream.functions.function import Function

IN = TypeVar("IN")
KEY = TypeVar("KEY")


class KeySelector(Function, Generic[IN, KEY]):
    """Gives each record its key; equal records must get equal keys, on every machine."""

    @abstractmethod
    def get_key(self, value: IN) -> KEY:
        """Return the key of a record."""


class NullByteKeySelector(KeySelector[Any, int]):
    """A selector with the same key for every record: keyed operators process a stream without keys by it."""

    def get_key(self, value: Any) -> int:
        return 0


class Partitioner(Function, Generic[KEY]):
    """Chooses the subtask of each record by its key."""

    @abstractmethod
    def partition(self, key: KEY, num_partitions: int) -> int:
        """Return a place from 0 to `num_partitions` - 1; anything else fails the job, naming the key."""
