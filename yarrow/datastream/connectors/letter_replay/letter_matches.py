"""Matches in dead letters of patterns: how a letter becomes a match for the function of the pattern.

Owner: the calling thread: the task's, or that of a client that checks letters before a job begins.
"""

from __future__ import annotations

from typing import Any

from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.dead_letters import DeadLetter, LeftOutMatch
from yarrow.datastream.connectors.letter_replay.letter_rows import LetterNotReadError, ReadLetter, rows_in
from yarrow.runtime.graph.operator_spec import TypeSpec


def letters_of_matches(type_spec: TypeSpec, *, trusts_pickles: bool) -> ReadLetter:
    """Return what makes a match of a letter of a pattern; it raises LetterNotReadError for other letters."""

    def read(letter: DeadLetter) -> SourceRecords:
        if not letter.steps or letter.match_time is None:
            raise LetterNotReadError("it does not hold all rows of its match")
        rows = rows_in(letter, letter.rows, type_spec, trusts_pickles=trusts_pickles)
        if len(rows) != len(letter.steps):
            raise LetterNotReadError(f"it holds {len(rows)} rows and names the steps of {len(letter.steps)}")
        match: dict[str, list[Any]] = {}
        for step, row in zip(letter.steps, rows, strict=True):
            match.setdefault(step, []).append(row)
        found = LeftOutMatch(match, letter.match_time, letter.timed_out, letter.key)
        return SourceRecords([found], [letter.timestamp])

    return read
