"""Strategies of hypothesis: rows with a column of each type that can be compared, and conditions with their model."""

from __future__ import annotations

import datetime as dt
import math
import operator
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from yarrow.common.values.conditions import Condition
from yarrow.table.expressions import col

BERLIN = dt.timezone(dt.timedelta(hours=1))
WHOLE = st.integers(-130, 130) | st.sampled_from([-(2**63), 2**31, 2**63 - 1])
FLOATS = st.sampled_from([0.0, -0.0, 0.1, 1.5, -1.5, math.nan, math.inf, -math.inf, 3.0]) | st.floats(
    width=32
)
TEXTS = st.sampled_from(["", "a", "b", "ä", "\U0001f600", "\uffff", "Z"])
DATES = st.dates() | st.just(dt.date(1970, 1, 1))
TIMES = st.datetimes() | st.just(dt.datetime(1970, 1, 1))
#: Of each type of columns: values of its rows, and those that it is compared with.
VALUES: dict[pa.DataType, tuple[st.SearchStrategy[Any], st.SearchStrategy[Any]]] = {
    pa.bool_(): (st.booleans(), st.booleans()),
    pa.int8(): (st.integers(-128, 127), WHOLE),
    pa.int32(): (st.integers(-200, 200), WHOLE),
    pa.int64(): (WHOLE, WHOLE),
    pa.uint8(): (st.integers(0, 255), WHOLE),
    pa.uint64(): (st.integers(0, 200) | st.just(2**64 - 1), WHOLE.filter(lambda value: value >= 0)),
    pa.float32(): (FLOATS.filter(lambda x: math.isnan(x) or abs(x) < 2**20), FLOATS),
    pa.float64(): (FLOATS, FLOATS | st.integers(-3, 3)),
    pa.string(): (TEXTS, TEXTS),
    pa.large_string(): (TEXTS, TEXTS),
    pa.dictionary(pa.int32(), pa.string()): (TEXTS, TEXTS),
    pa.date32(): (DATES, DATES),
    pa.timestamp("us"): (TIMES, TIMES),
    pa.timestamp("s"): (TIMES.map(lambda time: time.replace(microsecond=0)), TIMES),
    pa.timestamp("us", "Europe/Berlin"): (
        TIMES.filter(lambda time: 1 < time.year < 9999).map(lambda time: time.replace(tzinfo=dt.UTC)),
        TIMES.filter(lambda time: 1 < time.year < 9999).map(lambda time: time.replace(tzinfo=BERLIN)),
    ),
}
NAMES = {kind: f"a {kind}" for kind in VALUES}
COMPARED: dict[str, Callable[[Any, Any], Any]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

#: A condition with its model: the truth of a row, None for null.
Modelled = tuple[Condition, Callable[[dict[str, Any]], bool | None]]


def not_nan(value: Any) -> bool:
    return not (isinstance(value, float) and math.isnan(value))


@st.composite
def comparisons(draw: st.DrawFn) -> Modelled:
    kind = draw(st.sampled_from(sorted(VALUES, key=str)))
    name = NAMES[kind]
    if draw(st.integers(0, 4)) == 0:
        return col(name).is_null, lambda row: row[name] is None
    value = draw(VALUES[kind][1].filter(not_nan))
    compare = COMPARED[symbol := draw(st.sampled_from(sorted(COMPARED)))]
    condition = COMPARED[symbol](col(name), value)
    return condition, lambda row: None if row[name] is None else bool(compare(row[name], value))


def both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


def negated(truth: bool | None) -> bool | None:
    return None if truth is None else not truth


def combined(parts: st.SearchStrategy[Modelled]) -> st.SearchStrategy[Modelled]:
    pairs = st.tuples(parts, parts)
    return st.one_of(
        pairs.map(lambda p: (p[0][0] & p[1][0], lambda row: both(p[0][1](row), p[1][1](row)))),
        pairs.map(
            lambda p: (
                p[0][0] | p[1][0],
                lambda row: negated(both(negated(p[0][1](row)), negated(p[1][1](row)))),
            )
        ),
        parts.map(lambda p: (~p[0], lambda row: negated(p[1](row)))),
    )


CONDITIONS = st.recursive(comparisons(), combined, max_leaves=5)
ROWS = st.lists(
    st.fixed_dictionaries({NAMES[kind]: st.none() | values for kind, (values, _) in VALUES.items()}),
    max_size=8,
)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = {}
    for kind, name in NAMES.items():
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        column = pa.array([row[name] for row in rows], plain)
        columns[name] = column.dictionary_encode().cast(kind) if plain != kind else column
    return pa.record_batch(columns)
