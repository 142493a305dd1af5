"""Generates the code that lets a row wait in KeyedRowsByTime.

Owner: the task thread while it compiles. Must not know watermarks or late rows.
"""

from __future__ import annotations

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.event_time_order.keyed_rows_by_time import KeyedRowsByTime
from yarrow.container.operators.rows.key_selection import generate_canonical_key


def generate_added(code: CodeWriter, rows: KeyedRowsByTime, key: str, time: str, row: str) -> None:
    """Generates code that adds a row to `rows`; `key` is a variable with a raw key."""
    entries, waiting = code.bind("entries", rows.entries), code.fresh("waiting")
    canonical = generate_canonical_key(code, key)
    with code.block(f"if {time} in {entries}:"):
        code.line(f"{waiting} = {entries}[{time}]")
    with code.block("else:"):
        code.line(f"{waiting} = {code.bind('begin', rows.begin)}({time})")
    kept = row
    if rows.form is not None:
        kept = rows.form.generate_kept(code, canonical, row, with_other_key=False)
    code.line(f"{waiting}.append({canonical})")
    code.line(f"{waiting}.append({kept})")
