"""Rows of dead letters of functions and sinks: the encoding of the declared type of the operator's input.

Owner: the calling thread: the task's, or that of a client that checks letters before a job begins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yarrow.common.type_information import declared_type
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.dead_letters import RECORD_PICKLED, DeadLetter
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.data.serializers.serializers import RowsSerializer, serializer_for
from yarrow.runtime.graph.operator_spec import TypeSpec

#: Makes rows of one letter, with their timestamps.
ReadLetter = Callable[[DeadLetter], SourceRecords]


class LetterNotReadError(YarrowError):
    """The record of a dead letter cannot be made a row of the operator that had put it aside."""


def holds_pickle(letter: DeadLetter, type_spec: TypeSpec) -> bool:
    """Whether reading the row of a letter for an input of this type reads a pickle."""
    return _serializer(letter, type_spec).pickles


def type_text(type_spec: TypeSpec) -> str:
    """Return the type as letters name it; empty = undeclared."""
    declared = declared_type(type_spec)
    return "" if declared is None else str(declared)


def letters_of_rows(type_spec: TypeSpec, *, trusts_pickles: bool = False) -> ReadLetter:
    """Return what makes a row of a letter of a function or sink; it raises LetterNotReadError for other letters."""

    def read(letter: DeadLetter) -> SourceRecords:
        rows = rows_in(letter, letter.raw, type_spec, trusts_pickles=trusts_pickles)
        if len(rows) != 1:
            raise LetterNotReadError(f"it holds {len(rows)} rows instead of one")
        return SourceRecords(rows, [letter.timestamp])

    return read


def rows_in(
    letter: DeadLetter, encoded: bytes | None, type_spec: TypeSpec, *, trusts_pickles: bool
) -> list[Any]:
    """Return the rows in bytes of a letter. Raises LetterNotReadError for bytes that hold none of this type."""
    serializer = _serializer(letter, type_spec)
    if serializer.pickles and not trusts_pickles:
        raise LetterNotReadError("its record is pickled, and the command was not told to trust pickles")
    try:
        return list(serializer.load_rows(encoded or b""))
    except Exception as error:  # a pickle may raise anything
        raise LetterNotReadError(f"its record cannot be read as {_shown(letter)}: {error}") from error


def _shown(letter: DeadLetter) -> str:
    return letter.record_type or letter.encoding


def _serializer(letter: DeadLetter, type_spec: TypeSpec) -> RowsSerializer:
    # A program may have declared the type since then.
    undeclared = letter.encoding == RECORD_PICKLED and not letter.record_type
    return serializer_for(None if undeclared else declared_type(type_spec))
