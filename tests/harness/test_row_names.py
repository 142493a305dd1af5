"""The names that Rows bear by the declared type of their stream: from sources, in chains and behind exchanges."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from yarrow.common import Row, RowKind, Types
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.types import own_names, positional_row
from yarrow.datastream import DataStream, KeyedProcessFunction, OutputTag, ProcessFunction, RuntimeContext
from yarrow.runtime.data.row_names import namer_for
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.testing.operator_harness import OperatorHarness

INT, STRING = Types.INT(), Types.STRING()
PAIR = Types.ROW([STRING, INT])
NAMED = Types.ROW_NAMED(["word", "count"], [STRING, INT])


def run(fragment: Callable[[DataStream], DataStream], *rows: Any, type_info: Any = None) -> list[Any]:
    with OperatorHarness(fragment, types=[type_info]) as harness:
        harness.push(*rows)
        return harness.output


def names_and_texts(row: Row) -> tuple[Any, ...]:
    return row.get_field_names(), str(row), row.as_dict(), row["f1"], row.f0


SEEN = (["f0", "f1"], "Row(f0='a', f1=2)", {"f0": "a", "f1": 2}, 2, "a")


@pytest.mark.parametrize(
    "exchange",
    [
        pytest.param(lambda rows: rows, id="chained"),
        pytest.param(lambda rows: rows.rebalance(), id="rebalance"),
        pytest.param(lambda rows: rows.key_by(lambda row: row[0]), id="key"),
        pytest.param(lambda rows: rows.key_by(lambda row: row), id="whole row"),
        pytest.param(lambda rows: rows.filter(lambda row: row.f1 > 0), id="filter"),
    ],
)
def test_rows_of_a_row_type_bear_positional_names(exchange: Callable[[Any], Any]) -> None:
    def fragment(rows: DataStream) -> Any:
        return exchange(rows.map(lambda pair: Row(*pair), PAIR)).map(names_and_texts)

    assert run(fragment, ("a", 2)) == [SEEN]


@pytest.mark.parametrize("shared", [True, False])
def test_declared_names_are_given_to_rows_that_have_none(shared: bool) -> None:
    template = Row("a", 2)

    def fragment(rows: DataStream) -> DataStream:
        rows = rows.map(lambda pair: template if shared else positional_row(pair), NAMED)
        return rows.key_by(lambda row: row["word"]).sum("count")

    output = run(fragment, ("a", 2), ("a", 2))
    assert output == [Row(word="a", count=2), Row(word="a", count=4)]
    # The function's own object is not changed.
    assert template.get_field_names() is None


def test_one_row_in_streams_of_several_types() -> None:
    shared = Row("a", 2)
    other = Types.ROW_NAMED(["x", "y"], [STRING, INT])

    def fragment(rows: DataStream) -> DataStream:
        streams = [rows.map(lambda _: shared, kind).map(str) for kind in (PAIR, NAMED, other)]
        return streams[0].union(*streams[1:])

    assert sorted(run(fragment, 1)) == [
        "Row(f0='a', f1=2)",
        "Row(word='a', count=2)",
        "Row(x='a', y=2)",
    ]


def test_a_row_of_no_declared_type_has_no_names() -> None:
    assert run(lambda rows: rows.map(lambda _: Row("a", 2)).map(str), 1) == ["<Row('a', 2)>"]


def test_sum_min_and_max_of_a_positional_name() -> None:
    def fragment(rows: DataStream) -> DataStream:
        keyed = rows.key_by(lambda row: row.f0)
        return keyed.sum("f1").union(keyed.min("f1"), keyed.max_by("f1"))

    output = run(fragment, Row("a", 2), Row("a", 3), type_info=PAIR)
    assert sorted(row.f1 for row in output) == [2, 2, 2, 2, 3, 5]
    assert all(own_names(row) is None for row in output)


class Collect(KeyedProcessFunction[Any, Any, Any]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self._times = 0

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(10)
        yield "element", ctx.get_current_key().f0

    def on_timer(self, timestamp: int, ctx: Any) -> Iterable[Any]:
        yield "timer", ctx.get_current_key().f0


def test_a_key_that_is_the_row_bears_the_names_in_timers_too() -> None:
    with OperatorHarness(
        lambda rows: rows.key_by(lambda row: row).process(Collect()), types=[PAIR]
    ) as harness:
        harness.push(positional_row(["a", 1]), Row("a", 1))
        harness.watermark(20)
        assert harness.output == [("element", "a"), ("element", "a"), ("timer", "a")]


def test_rows_of_a_side_output_bear_names() -> None:
    tag = OutputTag("side", PAIR)

    class Aside(ProcessFunction[Any, Any]):
        def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
            yield tag, Row(*value)

    chained = run(lambda rows: rows.process(Aside()).get_side_output(tag).map(names_and_texts), ("a", 2))
    exchanged = run(
        lambda rows: rows.process(Aside()).get_side_output(tag).rebalance().map(names_and_texts), ("a", 2)
    )
    assert chained == exchanged == [SEEN]


def test_kinds_stay_and_rows_of_another_width_are_left_to_the_serializer() -> None:
    row = Row.of_kind(RowKind.DELETE, "a", 2)
    for kind in (PAIR, NAMED):
        name = namer_for(kind)
        assert name is not None
        assert name(row).get_row_kind() is RowKind.DELETE
        assert name(Row("a")).get_field_names() is None
        assert name(None) is None and name(("a", 2)) == ("a", 2)
    wide = run(lambda rows: rows.map(lambda _: Row("a"), PAIR).map(lambda r: r.get_field_names()), 1)
    assert wide == [None]


NESTED: list[tuple[TypeInformation, Any, Callable[[Any], Any]]] = [
    (Types.TUPLE([INT, PAIR]), (1, Row("a", 2)), lambda value: value[1]),
    (Types.LIST(PAIR), [Row("a", 2)], lambda value: value[0]),
    (Types.OBJECT_ARRAY(PAIR), [Row("a", 2)], lambda value: value[0]),
    (Types.MAP(STRING, PAIR), {"k": Row("a", 2)}, lambda value: value["k"]),
    (Types.ROW([PAIR]), Row(Row("a", 2)), lambda value: value.f0),
    (Types.ROW_NAMED(["r"], [PAIR]), Row(r=Row("a", 2)), lambda value: value.r),
    (Types.TUPLE([Types.LIST(PAIR)]), ([Row("a", 2)],), lambda value: value[0][0]),
]


@pytest.mark.parametrize(("type_info", "value", "inner"), NESTED, ids=[str(case[0]) for case in NESTED])
def test_rows_inside_of_others(type_info: TypeInformation, value: Any, inner: Callable[[Any], Any]) -> None:
    (emitted,) = run(lambda rows: rows.map(lambda _: value, type_info), 1)
    assert names_and_texts(inner(emitted)) == SEEN and emitted == value
    serializer = serializer_for(type_info)
    (read,) = serializer.load_rows(serializer.dump_rows([value]))
    assert names_and_texts(inner(read)) == SEEN and read == value


def test_declared_names_inside_of_others() -> None:
    value = ({"k": [Row("a", 2), Row(word="b", count=3)]}, Row("a", 2))
    (emitted,) = run(
        lambda rows: rows.map(lambda _: value, Types.TUPLE([Types.MAP(STRING, Types.LIST(NAMED)), NAMED])), 1
    )
    assert emitted == (
        {"k": [Row(word="a", count=2), Row(word="b", count=3)]},
        Row(word="a", count=2),
    )
    assert value[0]["k"][0].get_field_names() is None and value[1].get_field_names() is None
