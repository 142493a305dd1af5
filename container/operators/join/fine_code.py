"""Generates the code that joins a row with the FineRows of the other side and keeps it, by their dicts.

Owner: the task thread while it compiles, then the code. Rare cases go through FineRows: buckets that a cut has put
aside, and rows that must stand in a list. Must not know watermarks. See docs/design/0033-joins.md.
"""

from __future__ import annotations

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.join.fine_rows import FineRows, timed_entries
from yarrow.container.operators.join.pair_calls import PairCalls
from yarrow.container.operators.join.pair_code import (
    JoinedRow,
    computes_pairs,
    generate_failures,
    generate_result,
    generate_timed_results,
)


def generate_fine_results(
    code: CodeWriter, rows: FineRows, bounds: tuple[int, int], row: JoinedRow, pairs: PairCalls
) -> str:
    """Generates code that calls the function for a row with each kept one whose time differs by `bounds` at most.

    Returns the variable with the results: alone if the interval is of one time, otherwise with their times.
    """
    results = code.fresh("results")
    code.line(f"{results} = ()")
    if bounds[0] == bounds[1]:
        _generate_of_one_time(code, rows, bounds[0], row, pairs, results)
    else:
        _generate_of_several_times(code, rows, bounds, row, pairs, results)
    return results


def _generate_of_one_time(
    code: CodeWriter, rows: FineRows, distance: int, row: JoinedRow, pairs: PairCalls, results: str
) -> None:
    """Generates the results for an interval of one time, which has a bucket of its own."""
    start, found, other = code.fresh("start"), code.fresh("found"), code.fresh("other")
    code.line(f"{start} = {row.time} + {distance}" if distance else f"{start} = {row.time}")
    bucket = _generate_bucket(code, rows, start)
    with code.block(f"if {bucket} is not None and {row.key} in {bucket}:"):
        code.line(f"{found} = {bucket}[{row.key}]")
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
        code.line(f"{context}.left = {row.time if row.is_left else start}")
        code.line(f"{context}.right = {start if row.is_left else row.time}")
        code.line(f"{context}.result = {start if distance > 0 else row.time}")
        code.line(f"{results} = []")
        each = code.block(f"for {other} in {found} if {found}.__class__ is list else ({found},):")
        with generate_failures(code, pairs, row, other), each:
            process, both = code.bind("process", pairs.process), ", ".join(row.pair(other))
            code.line(f"{made} = {process}({both}, {context})")
            with code.block(f"if {made} is not None:"):
                code.line(f"{results} += {made}")


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
            if rows.length == 1:
                several = f"({found} if {found}.__class__ is list else ({found},))"
                code.line(f"{found} = [({start}, False, {entry}) for {entry} in {several}]")
            else:
                code.line(f"{found} = {code.bind('timed_entries', timed_entries)}({found})")
                with code.block(f"if {found}[0][0] < {first} or {found}[-1][0] > {last}:"):
                    chosen = f"if {first} <= {entry}[0] <= {last}"
                    code.line(f"{found} = [{entry} for {entry} in {found} {chosen}]")
            code.line(f"{partners} = {partners} + {found} if {partners} else {found}")
    with code.block(f"if {partners}:"):
        generate_timed_results(code, pairs, row, partners, results)


def generate_fine_added(code: CodeWriter, rows: FineRows, row: JoinedRow) -> None:
    """Generates code that keeps a row."""
    key, value, time, length = row.key, row.value, row.time, rows.length
    start, bucket, found = code.fresh("start"), code.fresh("bucket"), code.fresh("found")
    code.line(f"{start} = {time}" if length == 1 else f"{start} = {time} - {time} % {length}")
    code.line(f"{bucket} = {code.bind('live', rows.live)}.get({start})")
    with code.block(f"if {bucket} is None:"):
        code.line(f"{bucket} = {code.bind('begin', rows.begin)}({start}, {value})")
    with code.block(f"if {key} in {bucket}:"):
        code.line(f"{code.bind('further', rows.further)}[{start}] += 1")
        code.line(f"{found} = {bucket}[{key}]")
        if length > 1:
            code.line(f"{found} += ({time}, {value})")
        else:
            with code.block(f"if {found}.__class__ is list:"):
                code.line(f"{found}.append({value})")
            with code.block("else:"):
                code.line(f"{bucket}[{key}] = [{found}, {value}]")
    if length > 1:
        with code.block("else:"):
            code.line(f"{bucket}[{key}] = [{time}, {value}]")
        return
    with code.block(f"elif {value} is None or {value}.__class__ is list:"):
        code.line(f"{code.bind('add_to_list', rows.add_to_list)}({bucket}, {start}, {key}, {value})")
    with code.block("else:"):
        code.line(f"{bucket}[{key}] = {value}")


def _generate_bucket(code: CodeWriter, rows: FineRows, start: str) -> str:
    """Generates code that looks for the bucket of a start; returns its variable, None if there is none."""
    bucket, has_more = code.fresh("bucket"), code.fresh("has_more")
    code.at_start(f"{has_more} = {code.bind('rows', rows)}.has_more")
    code.line(f"{bucket} = {code.bind('live', rows.live)}.get({start})")
    with code.block(f"if {bucket} is None and {has_more}:"):
        code.line(f"{bucket} = {code.bind('look', rows.look)}({start})")
    return bucket
