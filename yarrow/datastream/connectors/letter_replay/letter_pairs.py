"""Pairs of rows in dead letters of joins: how a letter becomes a pair, and the key by which the pair finds its join.

Owner: the calling thread: the task's, or that of a client that checks letters before a job begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.dead_letters import DeadLetter, LeftOutPair
from yarrow.datastream.connectors.letter_replay.letter_rows import LetterNotReadError, ReadLetter
from yarrow.datastream.functions import KeySelector


def letters_of_pairs(read: ReadLetter) -> ReadLetter:
    """Return what makes a pair of a letter whose record `read` makes; it raises LetterNotReadError for others."""

    def read_pair(letter: DeadLetter) -> SourceRecords:
        if len(letter.row_times) != 2:
            raise LetterNotReadError("it does not tell the times of both rows")
        (pair,) = read(letter).rows
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise LetterNotReadError("its record is no pair of rows")
        (left, right), (left_time, right_time) = pair, letter.row_times
        return SourceRecords([LeftOutPair(left, right, left_time, right_time)], [letter.timestamp])

    return read_pair


class KeyOfPair(KeySelector[LeftOutPair, Any]):
    """The key of a pair: that of its left row, or of the right one where there is no left row."""

    def __init__(self, left: Callable[[Any], Any], right: Callable[[Any], Any]) -> None:
        self._left = left
        self._right = right

    def get_key(self, value: LeftOutPair) -> Any:
        """Return the key."""
        return self._right(value.right) if value.left is None else self._left(value.left)
