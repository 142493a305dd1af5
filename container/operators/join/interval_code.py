"""Generates the code that joins a row with those of the other side and keeps it, by dicts of rows in local variables.

Owner: the task thread while it compiles, then the code. The dict of a bucket is asked for once a call of the generated
function. What is rare goes through SideRows: several buckets to look into, large tables, keys that the dict does not
have. Must not know watermarks or user functions. See docs/design/0033-joins.md.
"""

from __future__ import annotations

from bisect import bisect_left

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.join.side_rows import SideRows


def generate_partners(
    code: CodeWriter, rows: SideRows, bounds: tuple[int, int], key: str, time: str, *, mark: bool
) -> str:
    """Generates code that finds the rows of a canonical key whose times differ by `bounds` at most.

    Returns the variable with their entries, which must not be changed. With `mark` the state notes that they have met
    a row, and none is found in line.
    """
    partners, first, last = code.fresh("partners"), code.fresh("first"), code.fresh("last")
    find = code.bind("find", rows.finding(mark=mark))
    code.line(f"{first} = {time} + {bounds[0]}")
    code.line(f"{last} = {time} + {bounds[1]}")
    if mark or rows.has_other_buckets:
        code.line(f"{partners} = {find}({key}, {first}, {last})")
        return partners
    start, entries = code.fresh("start"), code.fresh("entries")
    buckets = _buckets_of_call(code)
    code.line(f"{start} = {first} - {first} % {rows.length}")
    with code.block(f"if {last} - {start} < {rows.length}:"):
        code.line(f"{entries} = {buckets}.get({start})")
        with code.block(f"if {entries} is None:"):
            code.line(f"{entries} = {buckets}[{start}] = {code.bind('bucket', rows.bucket)}({start})")
        _generate_found(code, partners, entries, key)
        with code.block(f"if {partners} is None:"):
            code.line(f"{partners} = ()")
        with code.block(f"elif {partners}[0][0] < {first} or {partners}[-1][0] > {last}:"):
            _generate_part(code, partners, first, last)
    with code.block("else:"):
        code.line(f"{partners} = {find}({key}, {first}, {last})")
    return partners


def generate_added(code: CodeWriter, rows: SideRows, key: str, time: str, entry: str) -> None:
    """Generates code that keeps an entry of a canonical key. `entry` is an expression."""
    start, entries, found, at = (
        code.fresh("start"),
        code.fresh("entries"),
        code.fresh("found"),
        code.fresh("at"),
    )
    buckets, counts = _buckets_of_call(code), code.bind("number_of", rows.number_of)
    code.line(f"{start} = {time} - {time} % {rows.length}")
    code.line(f"{entries} = {buckets}.get({start})")
    with code.block(f"if {entries} is None:"):
        code.line(f"{entries} = {buckets}[{start}] = {code.bind('new_bucket', rows.new_bucket)}({start})")
    _generate_found(code, found, entries, key)
    with code.block(f"if {found} is None:"):
        code.line(f"{code.bind('begin', rows.begin)}({key}, {entry}, {start})")
    with code.block(f"elif {found}[-1][0] <= {time}:"):
        code.line(f"{found}.append({entry})")
    with code.block("else:"):
        # A tuple of the next time alone stands behind all entries of this time, and no row is compared.
        code.line(f"{at} = {code.bind_as('bisect_left', bisect_left)}({found}, ({time} + 1,))")
        code.line(f"{found}.insert({at}, {entry})")
    code.line(f"{counts}[{start}] += 1")


def _buckets_of_call(code: CodeWriter) -> str:
    """A local dict with the buckets that the present call has asked for, by their starts."""
    buckets = code.fresh("buckets")
    code.at_start(f"{buckets} = {{}}")
    return buckets


def _generate_found(code: CodeWriter, found: str, bucket: str, key: str) -> None:
    """Generates code for the entries of a key in a bucket; None = there are none. They may be changed."""
    table, miss = code.fresh("table"), code.fresh("miss")
    code.line(f"{table}, {miss} = {bucket}")
    code.line(f"{found} = {table}.get({key})")
    with code.block(f"if {found} is None and {miss} is not None:"):
        code.line(f"{found} = {miss}({key})")


def _generate_part(code: CodeWriter, rows: str, first: str, last: str) -> None:
    """Generates code that takes the entries from one time to another one out of a sorted list."""
    low = code.fresh("at")
    bisect = code.bind_as("bisect_left", bisect_left)
    code.line(f"{low} = {bisect}({rows}, ({first},))")
    with code.block(f"if {low} == len({rows}) or {rows}[{low}][0] > {last}:"):
        code.line(f"{rows} = ()")
    with code.block("else:"):
        code.line(f"{rows} = {rows}[{low} : {bisect}({rows}, ({last} + 1,), {low})]")
