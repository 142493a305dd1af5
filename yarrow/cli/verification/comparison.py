"""Compares the rows of one sink in both modes, key by key. Pure; it reads entries in order and holds few of them.

Owner: the main thread. Rows are compared as multisets: how often each row of a key came, not in which order.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import groupby
from math import isclose
from typing import Final

from yarrow.cli.verification.captured_rows import Entry

#: Rows of a key that are shown for each mode.
SHOWN_ROWS: Final = 5
#: Relative difference of floats that rounding explains.
_ROUNDING: Final = 1e-9
_FLOAT: Final = re.compile(r"-?\d+\.\d+(?:[eE][-+]?\d+)?|-?\d+[eE][-+]?\d+")


@dataclass
class KeyDifference:
    """The rows of one key that only one of the modes has."""

    key_text: str
    #: The rows are their own keys: the sink's rows tell no key.
    is_row: bool
    only_streaming: list[str] = field(default_factory=list)
    only_batch: list[str] = field(default_factory=list)
    #: Rows that each mode has of the key, and those that the other lacks.
    rows: tuple[int, int] = (0, 0)
    missing: tuple[int, int] = (0, 0)

    @property
    def is_rounding(self) -> bool:
        """True if the rows differ in floats alone, and in those by no more than rounding."""
        pairs = zip(self.only_streaming, self.only_batch, strict=False)
        return self.missing[0] == self.missing[1] <= SHOWN_ROWS and all(
            _nearly_equal(one, other) for one, other in pairs
        )


@dataclass
class SinkComparison:
    """The result for one sink."""

    #: Rows that reached the sink in STREAMING and in BATCH.
    rows: tuple[int, int] = (0, 0)
    differing_keys: int = 0
    #: In the order of keys as texts; a key that rounding explains only if it explains all.
    first: KeyDifference | None = None

    @property
    def is_equal(self) -> bool:
        """True if both modes have the same rows."""
        return self.first is None


def compare(streaming: Iterable[Entry], batch: Iterable[Entry], *, rows_are_keys: bool) -> SinkComparison:
    """Compares the entries of both modes, each in order; `rows_are_keys`: the sink's rows tell no key."""
    result = SinkComparison()
    counts = [0, 0]
    sided = heapq.merge(_of_side(streaming, 0), _of_side(batch, 1))
    rounding: KeyDifference | None = None
    for _, entries in groupby(sided, key=lambda pair: pair[0].key):
        difference = _difference(entries, rows_are_keys)
        counts[0] += difference.rows[0]
        counts[1] += difference.rows[1]
        if not any(difference.missing):
            continue
        result.differing_keys += 1
        if rows_are_keys:
            if result.first is None:
                result.first = difference
            else:
                _join(result.first, difference)
        elif difference.is_rounding:
            rounding = _earlier(rounding, difference)
        else:
            result.first = _earlier(result.first, difference)
    result.first = result.first or rounding
    result.rows = (counts[0], counts[1])
    return result


def _earlier(one: KeyDifference | None, other: KeyDifference) -> KeyDifference:
    return other if one is None or other.key_text < one.key_text else one


def _of_side(entries: Iterable[Entry], side: int) -> Iterator[tuple[Entry, int]]:
    return ((entry, side) for entry in entries)


def _difference(entries: Iterable[tuple[Entry, int]], rows_are_keys: bool) -> KeyDifference:
    """The rows of one key in both modes."""
    found = KeyDifference("", rows_are_keys)
    rows, missing = [0, 0], [0, 0]
    shown = (found.only_streaming, found.only_batch)
    for _, equal in groupby(entries, key=lambda pair: pair[0].row):
        times = [0, 0]
        row_text = ""
        for entry, side in equal:
            times[side] += 1
            row_text = entry.row_text
            found.key_text = entry.key_text
        for side, other in ((0, 1), (1, 0)):
            rows[side] += times[side]
            more = max(0, times[side] - times[other])
            missing[side] += more
            shown[side].extend([row_text] * min(more, SHOWN_ROWS - len(shown[side])))
    for each in shown:
        each.sort()
    found.rows, found.missing = (rows[0], rows[1]), (missing[0], missing[1])
    return found


def _join(first: KeyDifference, other: KeyDifference) -> None:
    """Keeps the first rows of all: without keys, the rows of both modes that belong together are unknown."""
    for mine, others in ((first.only_streaming, other.only_streaming), (first.only_batch, other.only_batch)):
        mine[:] = sorted([*mine, *others])[:SHOWN_ROWS]
    first.key_text = min(first.key_text, other.key_text)
    first.missing = (first.missing[0] + other.missing[0], first.missing[1] + other.missing[1])


def _nearly_equal(one: str, other: str) -> bool:
    """Whether two texts differ, and only in floats that rounding explains."""
    # Of equal texts the values differ in what is not shown, or in type.
    if one == other or _FLOAT.split(one) != _FLOAT.split(other):
        return False
    floats = zip(_FLOAT.findall(one), _FLOAT.findall(other), strict=True)
    return all(isclose(float(a), float(b), rel_tol=_ROUNDING) for a, b in floats)
