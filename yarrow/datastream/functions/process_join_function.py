"""ProcessJoinFunction: any number of results for each pair of a join of keyed streams.

An interface alone; called by the thread that owns the task. It does not decide which records are a pair.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any, Generic, TypeVar

from yarrow.datastream.functions.data_set_functions import RichFunction

IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")


class ProcessJoinFunction(RichFunction, Generic[IN1, IN2, OUT]):
    """Any number of results for each pair of a join of keyed streams, with side outputs."""

    class Context(ABC):
        """The times of the pair at hand, in milliseconds since the epoch. It must not be kept."""

        @abstractmethod
        def get_left_timestamp(self) -> int | None:
            """Return the time of the left record; None if it is missing."""

        @abstractmethod
        def get_right_timestamp(self) -> int | None:
            """Return the time of the right record; None if it is missing."""

        @abstractmethod
        def get_timestamp(self) -> int | None:
            """Return the time of the results: the later one of both, if the join does not say otherwise."""

    @abstractmethod
    def process_element(self, left: IN1 | None, right: IN2 | None, ctx: Context) -> Iterable[Any] | None:
        """Return or yield results and `(tag, value)` pairs for side outputs; None is no result.

        An outer join gives None in the place of a record that is missing.
        """
