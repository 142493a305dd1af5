"""Generates the code that joins a row with the FineRows of the other side and keeps it, by their dicts.

Owner: the task thread while it compiles, then the code. Rare cases go through FineRows: buckets that a cut has put
aside, and rows that must stand in a list. Must not know watermarks. See docs/design/0033-joins.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import results_of
from yarrow.container.operators.base import Emit
from yarrow.container.operators.join.fine_buckets import timed_entries
from yarrow.container.operators.join.fine_rows import FineRows
from yarrow.container.operators.join.pair_calls import PairCalls
from yarrow.container.operators.join.pair_code import (
    JoinedRow,
    computes_pairs,
    generate_emitted,
    generate_failures,
    generate_result,
    generate_timed_results,
)
from yarrow.container.operators.rows.key_selection import generate_canonical_key


class _Place(NamedTuple):
    """The variables of a time and of where rows of a key have it: the number of their bucket, and the place there."""

    time: str
    number: str
    place: str
    #: The canonical key of the place.
    key: str


def generate_fine_join(
    code: CodeWriter,
    sides: tuple[FineRows, FineRows],
    bounds: tuple[int, int],
    row: JoinedRow,
    pairs: PairCalls,
    emit: Emit,
) -> None:
    """Generates code that keeps a row, and emits its results with each kept one whose time differs by `bounds` at most.

    `sides`: the rows of the row's own side, which keeps it, and those of the other one.
    """
    own, other = sides
    if not own.by_place:
        _generate_of_several_times(code, sides, bounds, row, pairs, emit)
        return
    key = generate_canonical_key(code, row.key)
    place = met = _generate_place(code, own, row.time, key, 0)
    later = row.time
    if bounds[0]:
        met = _generate_place(code, other, row.time, key, bounds[0])
        later = met.time if bounds[0] > 0 else row.time
    bucket = _generate_bucket(code, other, met.number)
    _generate_added_by_place(code, own, place, row)
    found = code.fresh("found")
    with code.block(f"if {bucket} is not None and {met.place} in {bucket}:"):
        code.line(f"{found} = {bucket}[{met.place}]")
        _generate_of_one_time(code, other, found, met, row, pairs, later, emit)


def _generate_place(code: CodeWriter, rows: FineRows, time: str, key: str, distance: int) -> _Place:
    """Generates what fine_buckets.place_of computes, for a canonical key and a time plus a distance."""
    number, place = code.fresh("number"), code.fresh("place")
    if distance:
        met_time = code.fresh("met_time")
        code.line(f"{met_time} = {time} + {distance}")
        time = met_time
    code.line(f"{number} = {time} // {rows.length}")
    by_number = f"{key} * {rows.length} + {time} if {key}.__class__ is int"
    code.line(f"{place} = {by_number} else ({key}, {time} % {rows.length})")
    return _Place(time, number, place, key)


def _generate_of_one_time(
    code: CodeWriter,
    rows: FineRows,
    found: str,
    met: _Place,
    row: JoinedRow,
    pairs: PairCalls,
    later: str,
    emit: Emit,
) -> None:
    """Generates the results of a row with those of `rows` that it meets, `found` in the place `met`."""
    other, result = code.fresh("other"), code.fresh("v")

    @contextmanager
    def each() -> Iterator[None]:
        with code.block(f"for {other} in {found} if {found}.__class__ is list else ({found},):"):
            if rows.pairs is not None:
                rows.pairs.generate_row(code, met.key, other)
            yield

    if computes_pairs(code, pairs):
        with each():
            # Errors of a function come in here, and those of whoever takes the results do not.
            with generate_failures(code, pairs, row, other):
                result = generate_result(code, pairs, row, other)
            emit(result, later)
        return
    context, made, results = code.bind("context", pairs.context), code.fresh("made"), code.fresh("results")
    code.line(f"{context}.left = {row.time if row.is_left else met.time}")
    code.line(f"{context}.right = {met.time if row.is_left else row.time}")
    code.line(f"{context}.result = {later}")
    code.line(f"{results} = []")
    with generate_failures(code, pairs, row, other), each():
        process, both = code.bind("process", pairs.process), ", ".join(row.pair(other))
        code.line(f"{made} = {process}({both}, {context})")
        code.line(f"{results} += {code.bind('results_of', results_of)}({made})")
    with code.block(f"for {result} in {results}:"):
        emit(result, later)


def _generate_added_by_place(code: CodeWriter, rows: FineRows, at: _Place, row: JoinedRow) -> None:
    """Generates code that keeps a row in a bucket by place."""
    value, place, found = row.value, at.place, code.fresh("found")
    bucket = _generate_bucket_to_change(code, rows, at.number, value)
    if rows.pairs is not None:
        value = rows.pairs.generate_kept(code, at.key, value, with_other_key=True)
    with code.block(f"if {place} in {bucket}:"):
        code.line(f"{code.bind('further', rows.further)}[{at.number}] += 1")
        code.line(f"{found} = {bucket}[{place}]")
        with code.block(f"if {found}.__class__ is list:"):
            code.line(f"{found}.append({value})")
        with code.block("else:"):
            code.line(f"{bucket}[{place}] = [{found}, {value}]")
    with code.block(f"elif {value}.__class__ is list:"):
        code.line(f"{code.bind('add_to_list', rows.add_to_list)}({bucket}, {at.number}, {place}, {value})")
    with code.block("else:"):
        code.line(f"{bucket}[{place}] = {value}")


def _generate_of_several_times(
    code: CodeWriter,
    sides: tuple[FineRows, FineRows],
    bounds: tuple[int, int],
    row: JoinedRow,
    pairs: PairCalls,
    emit: Emit,
) -> None:
    """Generates generate_fine_join for an interval that reaches into several buckets."""
    own, rows = sides
    names = ("first", "last", "partners", "number", "found", "entry")
    first, last, partners, number, found, entry = map(code.fresh, names)
    key = generate_canonical_key(code, row.key)
    code.line(f"{first} = {row.time} + {bounds[0]}")
    code.line(f"{last} = {row.time} + {bounds[1]}")
    code.line(f"{partners} = ()")
    with code.block(f"for {number} in range({first} // {rows.length}, {last} // {rows.length} + 1):"):
        bucket = _generate_bucket(code, rows, number)
        with code.block(f"if {bucket} is not None and {key} in {bucket}:"):
            code.line(f"{found} = {bucket}[{key}]")
            code.line(f"{found} = {code.bind('timed_entries', timed_entries)}({found})")
            with code.block(f"if {found}[0][0] < {first} or {found}[-1][0] > {last}:"):
                chosen = f"if {first} <= {entry}[0] <= {last}"
                code.line(f"{found} = [{entry} for {entry} in {found} {chosen}]")
            code.line(f"{partners} = {partners} + {found} if {partners} else {found}")
    _generate_added_by_key(code, own, row, key)
    with code.block(f"if {partners}:"):
        generate_emitted(code, generate_timed_results(code, pairs, row, partners), emit)


def _generate_added_by_key(code: CodeWriter, rows: FineRows, row: JoinedRow, key: str) -> None:
    """Generates code that keeps a row of a canonical key in a bucket by key."""
    value, time, number = row.value, row.time, code.fresh("number")
    code.line(f"{number} = {time} // {rows.length}")
    bucket = _generate_bucket_to_change(code, rows, number, value)
    with code.block(f"if {key} in {bucket}:"):
        code.line(f"{code.bind('further', rows.further)}[{number}] += 1")
        code.line(f"{bucket}[{key}] += ({time}, {value})")
    with code.block("else:"):
        code.line(f"{bucket}[{key}] = [{time}, {value}]")


def _generate_bucket_to_change(code: CodeWriter, rows: FineRows, number: str, value: str) -> str:
    """Generates code for the bucket of a number to which a row is added; returns its variable."""
    bucket, live = code.fresh("bucket"), code.bind("live", rows.live)
    # To look twice into a small dict costs less than a call of its `get`.
    begun = f"{code.bind('begin', rows.begin)}({number}, {value})"
    code.line(f"{bucket} = {live}[{number}] if {number} in {live} else {begun}")
    return bucket


def _generate_bucket(code: CodeWriter, rows: FineRows, number: str) -> str:
    """Generates code that looks for the bucket of a number; returns its variable, None if there is none."""
    bucket, has_more, live = code.fresh("bucket"), code.fresh("has_more"), code.bind("live", rows.live)
    code.at_start(f"{has_more} = {code.bind('rows', rows)}.has_more")
    looked = f"{code.bind('look', rows.look)}({number}) if {has_more} else None"
    code.line(f"{bucket} = {live}[{number}] if {number} in {live} else {looked}")
    return bucket
