"""Columns of views and runs in each operator that hands rows of its input on: the values are those of plain columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from yarrow.cep import CEP, Pattern
from yarrow.common import Time, Types
from yarrow.common.types import Row
from yarrow.datastream import DataStream, OutputTag
from yarrow.datastream.window import TumblingEventTimeWindows
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.table.expressions import col
from yarrow.testing.operator_harness import OperatorHarness

LATE = OutputTag("late", Types.PICKLED_BYTE_ARRAY())
VIEWS = pa.struct([("q", pa.list_(pa.string_view()))])
#: The types, and how a column of each is made of texts.
KINDS: dict[str, Callable[[list[str]], pa.Array]] = {
    "string_view": lambda texts: pa.array(texts, pa.string_view()),
    "binary_view": lambda texts: pa.array([text.encode() for text in texts], pa.binary_view()),
    "list_view": lambda texts: pa.array([[text] for text in texts], pa.list_view(pa.string_view())),
    "run_end_encoded": lambda texts: pc.run_end_encode(pa.array(texts)),
    "struct": lambda texts: pa.array([{"q": [text]} for text in texts], VIEWS),
    "string": pa.array,
}


def ms(number: int) -> Time:
    return Time.milliseconds(number)


TUMBLING = TumblingEventTimeWindows.of(ms(10))


def with_late(made: DataStream) -> list[DataStream]:
    return [made, made.get_side_output(LATE)]


def matched(stream: DataStream) -> list[DataStream]:
    pattern = Pattern.begin("a").where(col("n") > 1).next("b").within(ms(10))
    found = CEP.pattern(stream.key_by("k"), pattern).side_output_late_data(LATE)
    return with_late(found.select(lambda match: [match["a"][0].v, match["b"][0].v]))


def windowed(stream: DataStream) -> list[DataStream]:
    windows = stream.key_by("k").window(TUMBLING).side_output_late_data(LATE)
    return with_late(windows.aggregate([("v", "count"), ("n", "sum")]))


def last(rows: pa.RecordBatch, groups: Any) -> dict[str, Any]:
    return {"last": [str(plain(rows["v"][at].as_py())) for at in (groups.offsets[1:] - 1).tolist()]}


def aggregated(stream: DataStream) -> list[DataStream]:
    windows = stream.key_by("k").window(TUMBLING).side_output_late_data(LATE)
    return with_late(windows.aggregate_batches(last, pa.schema([("last", pa.string())])))


def interval_joined(one: DataStream, other: DataStream) -> list[DataStream]:
    joined = one.key_by("k").interval_join(other.key_by("ok")).between(ms(-5), ms(5))
    return with_late(joined.left_outer().side_output_left_late_data(LATE).to_columns())


def window_joined(one: DataStream, other: DataStream) -> list[DataStream]:
    joined = one.key_by("k").window_join(other.key_by("ok")).window(TUMBLING)
    return with_late(joined.left_outer().side_output_left_late_data(LATE).to_columns())


def joined_as_of(one: DataStream, other: DataStream) -> list[DataStream]:
    joined = one.key_by("k").as_of_join(other.key_by("ok")).backward().left_outer()
    return with_late(joined.side_output_left_late_data(LATE).to_columns())


#: With the number of inputs: what an operator makes of them, and perhaps late rows.
OPERATORS: dict[str, tuple[int, Any]] = {
    "filter": (1, lambda stream: [stream.filter(col("n") > 1)]),
    "filter by an Arrow expression": (1, lambda stream: [stream.filter(pc.field("n") > 1)]),
    "filter_batches": (1, lambda stream: [stream.filter_batches(lambda rows: pc.greater(rows["n"], 1))]),
    "pattern": (1, matched),
    "windows": (1, windowed),
    "aggregate of users": (1, aggregated),
    "interval_join": (2, interval_joined),
    "window_join": (2, window_joined),
    "as_of_join": (2, joined_as_of),
}


def schema_of(index: int, kind: pa.DataType) -> pa.Schema:
    names = ["ok", "ov", "on"] if index else ["k", "v", "n"]
    return pa.schema(list(zip(names, [pa.int64(), kind, pa.int64()], strict=True)))


def results(name: str, make: Callable[[list[str]], pa.Array]) -> list[Any]:
    """The results of an operator. Rows come out of order, one is late, and the operator restarts while some wait."""
    inputs, build = OPERATORS[name]
    types = [schema_of(index, make(["x"]).type) for index in range(inputs)]

    def batch(index: int, *columns: Any) -> pa.RecordBatch:
        keys, texts, numbers = columns
        return pa.RecordBatch.from_arrays(
            [pa.array(keys), make(texts), pa.array(numbers)], schema=types[index]
        )

    found: list[Any] = []

    def note(harness: OperatorHarness) -> None:
        for index in range(harness.number_of_outputs):
            rows = [row for batch in harness.record_batches(index) for row in batch.to_pylist()]
            found.append(rows or list(harness.outputs(index)))

    with OperatorHarness(build, inputs=inputs, types=types) as harness:
        for index in range(inputs):
            rows = batch(index, [2, 1, 2, 1, 1], ["p", "q", "r", "s", "t"], [1, 2, 3, 4, 5])
            harness.send(ArrowBatch(rows, pa.array([5, 3, 1, 4, 12])), index)
        for index in range(inputs):
            harness.watermark(2, index)
            rows = batch(index, [1, 2], ["late", "u"], [6, 7])
            harness.send(ArrowBatch(rows, pa.array([-20, 6])), index)
        note(harness)
        with harness.restarted() as restored:
            for index in range(inputs):
                restored.watermark(100, index)
            note(restored)
    return found


def plain(values: Any) -> Any:
    """Values without the form in which a kind wraps a text."""
    match values:
        case bytes():
            return values.decode()
        case Row():
            return plain(values.as_dict())
        case {"q": [text]} | [str(text)]:
            return text
        case dict():
            return {name: plain(value) for name, value in values.items()}
        case list():
            return [plain(value) for value in values]
    return values


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "string"])
@pytest.mark.parametrize("name", OPERATORS)
def test_rows_with_views_and_runs_are_those_of_plain_columns(name: str, kind: str) -> None:
    found, expected = results(name, KINDS[kind]), results(name, KINDS["string"])
    assert any(found) and plain(found) == plain(expected)
