"""Generates the code that joins a row with the FineRows of the other side and keeps it, by their dicts.

Owner: the task thread while it compiles, then the code. Rare cases go through FineRows: buckets that a cut has put
aside, and rows that must stand in a list. Must not know watermarks. See docs/design/0033-joins.md.
"""

from __future__ import annotations

from typing import NamedTuple

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.join.fine_buckets import timed_entries
from yarrow.container.operators.join.fine_rows import FineRows
from yarrow.container.operators.join.pair_calls import PairCalls
from yarrow.container.operators.join.pair_code import (
    JoinedRow,
    computes_pairs,
    generate_failures,
    generate_result,
    generate_timed_results,
)


class _Place(NamedTuple):
    """The variables of a time and of where rows of that time stand: the start of their bucket, the place in it."""

    time: str
    start: str
    place: str
    #: How much later the time is than that of the row.
    distance: int


def generate_fine_join(
    code: CodeWriter,
    sides: tuple[FineRows, FineRows],
    bounds: tuple[int, int],
    row: JoinedRow,
    pairs: PairCalls,
) -> str:
    """Generates code that calls the function for a row with each kept one whose time differs by `bounds` at most.

    `sides`: the rows of the row's own side, which keeps it, and those of the other one. Returns the variable with the
    results: alone if the interval is of one time, otherwise with their times.
    """
    own, other = sides
    results = code.fresh("results")
    code.line(f"{results} = ()")
    if not own.by_place:
        _generate_of_several_times(code, other, bounds, row, pairs, results)
        _generate_added_by_key(code, own, row)
        return results
    place = met = _generate_place(code, own, row, 0)
    if bounds[0]:
        met = _generate_place(code, other, row, bounds[0])
    _generate_of_one_time(code, other, met, row, pairs, results)
    _generate_added_by_place(code, own, place, row)
    return results


def _generate_place(code: CodeWriter, rows: FineRows, row: JoinedRow, distance: int) -> _Place:
    """Generates what fine_buckets.place_of computes, for the key of a row and its time plus a distance."""
    offset, start, place, time = code.fresh("offset"), code.fresh("start"), code.fresh("place"), row.time
    if distance:
        time = code.fresh("met_time")
        code.line(f"{time} = {row.time} + {distance}")
    code.line(f"{offset} = {time} % {rows.length}")
    code.line(f"{start} = {time} - {offset}")
    by_number = f"{row.key} * {rows.length} + {offset}"
    code.line(f"{place} = {by_number} if {row.key}.__class__ is int else ({row.key}, {offset})")
    return _Place(time, start, place, distance)


def _generate_of_one_time(
    code: CodeWriter, rows: FineRows, met: _Place, row: JoinedRow, pairs: PairCalls, results: str
) -> None:
    """Generates the results for an interval of one time: the rows of the place `met`."""
    found, other = code.fresh("found"), code.fresh("other")
    bucket = _generate_bucket(code, rows, met.start)
    with code.block(f"if {bucket} is not None and {met.place} in {bucket}:"):
        code.line(f"{found} = {bucket}[{met.place}]")
        if computes_pairs(code, pairs):
            # Errors of a function come in here, and those of whoever takes the results do not.
            with generate_failures(code, pairs, row, other):
                with code.block(f"if {found}.__class__ is not list:"):
                    code.line(f"{other} = {found}")
                    code.line(f"{results} = ({generate_result(code, pairs, row, other)},)")
                with code.block("else:"):
                    code.line(f"{results} = []")
                    with code.block(f"for {other} in {found}:"):
                        code.line(f"{results}.append({generate_result(code, pairs, row, other)})")
            return
        context, made = code.bind("context", pairs.context), code.fresh("made")
        code.line(f"{context}.left = {row.time if row.is_left else met.time}")
        code.line(f"{context}.right = {met.time if row.is_left else row.time}")
        code.line(f"{context}.result = {met.time if met.distance > 0 else row.time}")
        code.line(f"{results} = []")
        each = code.block(f"for {other} in {found} if {found}.__class__ is list else ({found},):")
        with generate_failures(code, pairs, row, other), each:
            process, both = code.bind("process", pairs.process), ", ".join(row.pair(other))
            code.line(f"{made} = {process}({both}, {context})")
            with code.block(f"if {made} is not None:"):
                code.line(f"{results} += {made}")


def _generate_added_by_place(code: CodeWriter, rows: FineRows, at: _Place, row: JoinedRow) -> None:
    """Generates code that keeps a row in a bucket by place."""
    value, place, found = row.value, at.place, code.fresh("found")
    bucket = _generate_bucket_to_change(code, rows, at.start, value)
    with code.block(f"if {place} in {bucket}:"):
        code.line(f"{code.bind('further', rows.further)}[{at.start}] += 1")
        code.line(f"{found} = {bucket}[{place}]")
        with code.block(f"if {found}.__class__ is list:"):
            code.line(f"{found}.append({value})")
        with code.block("else:"):
            code.line(f"{bucket}[{place}] = [{found}, {value}]")
    with code.block(f"elif {value} is None or {value}.__class__ is list:"):
        code.line(f"{code.bind('add_to_list', rows.add_to_list)}({bucket}, {at.start}, {place}, {value})")
    with code.block("else:"):
        code.line(f"{bucket}[{place}] = {value}")


def _generate_of_several_times(
    code: CodeWriter, rows: FineRows, bounds: tuple[int, int], row: JoinedRow, pairs: PairCalls, results: str
) -> None:
    """Generates the results for an interval that reaches into several buckets."""
    names = ("first", "last", "partners", "start", "found", "entry")
    first, last, partners, start, found, entry = map(code.fresh, names)
    code.line(f"{first} = {row.time} + {bounds[0]}")
    code.line(f"{last} = {row.time} + {bounds[1]}")
    code.line(f"{partners} = ()")
    with code.block(f"for {start} in range({first} - {first} % {rows.length}, {last} + 1, {rows.length}):"):
        bucket = _generate_bucket(code, rows, start)
        with code.block(f"if {bucket} is not None and {row.key} in {bucket}:"):
            code.line(f"{found} = {bucket}[{row.key}]")
            code.line(f"{found} = {code.bind('timed_entries', timed_entries)}({found})")
            with code.block(f"if {found}[0][0] < {first} or {found}[-1][0] > {last}:"):
                chosen = f"if {first} <= {entry}[0] <= {last}"
                code.line(f"{found} = [{entry} for {entry} in {found} {chosen}]")
            code.line(f"{partners} = {partners} + {found} if {partners} else {found}")
    with code.block(f"if {partners}:"):
        generate_timed_results(code, pairs, row, partners, results)


def _generate_added_by_key(code: CodeWriter, rows: FineRows, row: JoinedRow) -> None:
    """Generates code that keeps a row in a bucket by key."""
    key, value, time, start = row.key, row.value, row.time, code.fresh("start")
    code.line(f"{start} = {time} - {time} % {rows.length}")
    bucket = _generate_bucket_to_change(code, rows, start, value)
    with code.block(f"if {key} in {bucket}:"):
        code.line(f"{code.bind('further', rows.further)}[{start}] += 1")
        code.line(f"{bucket}[{key}] += ({time}, {value})")
    with code.block("else:"):
        code.line(f"{bucket}[{key}] = [{time}, {value}]")


def _generate_bucket_to_change(code: CodeWriter, rows: FineRows, start: str, value: str) -> str:
    """Generates code for the bucket of a start to which a row is added; returns its variable."""
    bucket = code.fresh("bucket")
    code.line(f"{bucket} = {code.bind('live', rows.live)}.get({start})")
    with code.block(f"if {bucket} is None:"):
        code.line(f"{bucket} = {code.bind('begin', rows.begin)}({start}, {value})")
    return bucket


def _generate_bucket(code: CodeWriter, rows: FineRows, start: str) -> str:
    """Generates code that looks for the bucket of a start; returns its variable, None if there is none."""
    bucket, has_more = code.fresh("bucket"), code.fresh("has_more")
    code.at_start(f"{has_more} = {code.bind('rows', rows)}.has_more")
    code.line(f"{bucket} = {code.bind('live', rows.live)}.get({start})")
    with code.block(f"if {bucket} is None and {has_more}:"):
        code.line(f"{bucket} = {code.bind('look', rows.look)}({start})")
    return bucket
