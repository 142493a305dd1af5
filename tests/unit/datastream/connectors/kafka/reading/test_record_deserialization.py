"""Messages become rows: tombstones, rows left out, ends of streams, and the record that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from yarrow.common.serialization import ByteArraySchema, DeserializationSchema, SimpleStringSchema
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaRecordError
from yarrow.datastream.connectors.kafka.reading.record_deserialization import (
    ConsumerRecord,
    KafkaRecordDeserializationSchema,
    MadeRows,
    letter_reader,
    row_maker,
)
from yarrow.datastream.formats.json import JsonColumnsDeserializationSchema, JsonRowDeserializationSchema


class UpToStop(SimpleStringSchema):
    def is_end_of_stream(self, next_element: str) -> bool:
        return next_element == "stop"


class Headers(KafkaRecordDeserializationSchema[tuple[Any, ...]]):
    """A row for each header, with where it stands."""

    def deserialize(self, record: ConsumerRecord) -> Iterator[tuple[Any, ...]]:
        if record.key == b"bad":
            raise ValueError("no good key")
        for name, value in record.headers:
            yield record.topic, record.offset, name, value

    def get_produced_type(self) -> TypeInformation:
        return Types.PICKLED_BYTE_ARRAY()


def made(schema: DeserializationSchema[Any], *values: bytes | None) -> MadeRows:
    stamps = [100 + index for index in range(len(values))]
    return row_maker(schema).make("t-0", values, stamps, range(10, 10 + len(values)))


def test_rows_have_the_timestamps_of_their_records() -> None:
    assert made(SimpleStringSchema(), b"a", b"b") == (["a", "b"], [100, 101], 0, False, ())


@pytest.mark.parametrize("schema", [SimpleStringSchema(), ByteArraySchema()])
def test_a_tombstone_gives_no_row(schema: DeserializationSchema[Any]) -> None:
    found = made(schema, b"a", None, b"c")
    assert (len(found.rows), list(found.timestamps), found.num_errors) == (2, [100, 102], 0)


def test_rows_that_the_schema_leaves_out_are_counted() -> None:
    row_type = Types.ROW_NAMED(["n"], [Types.INT()])
    schema = JsonRowDeserializationSchema.builder().type_info(row_type).ignore_parse_errors().build()
    found = made(schema, b'{"n": 1}', b"{", None, b'{"n": 2}')
    assert [row[0] for row in found.rows] == [1, 2]
    assert (list(found.timestamps), found.num_errors) == ([100, 103], 1)


def test_end_of_stream_is_not_emitted() -> None:
    assert made(UpToStop(), b"a", b"stop", b"b") == (["a"], [100], 0, True, ())


def test_the_record_that_cannot_be_read_is_named() -> None:
    with pytest.raises(KafkaRecordError) as failed:
        made(SimpleStringSchema(), b"a", None, b"\xff")
    assert str(failed.value).startswith(
        "the record at offset 12 of t-0 cannot be deserialized by SimpleStringSchema: 'utf-8' codec"
    )
    assert r"b'\xff'" in str(failed.value) and 'on_error("skip")' in str(failed.value)


def record(offset: int, key: bytes, *headers: str, value: bytes | None = None) -> ConsumerRecord:
    return ConsumerRecord("t", 0, offset, offset, key, value, tuple((name, b"v") for name in headers))


def test_a_record_gives_any_number_of_rows() -> None:
    records = [record(3, b"k", "x", "y"), record(4, b"k"), record(5, b"k", "z")]
    found = row_maker(Headers()).make("t-0", records, [3, 4, 5], [3, 4, 5])
    assert found.rows == [("t", 3, "x", b"v"), ("t", 3, "y", b"v"), ("t", 5, "z", b"v")]
    assert list(found.timestamps) == [3, 3, 5]


def test_a_failing_record_deserializer_is_named() -> None:
    with pytest.raises(
        KafkaRecordError, match=r"offset 8 of t-0 .* by Headers: no good key; its value: no value"
    ):
        row_maker(Headers()).make("t-0", [record(7, b"k"), record(8, b"bad")], [7, 8], [7, 8])


# ---------------------------------------------------------------------- on_error


@pytest.mark.parametrize(
    "values", [(b"a", b"\xff", b"c", b"\xfe"), (b"\xff",), (b"\xff", None, b"\xff", b"d")]
)
def test_a_bad_message_costs_itself_and_not_its_chunk(values: tuple[bytes | None, ...]) -> None:
    stamps = [100 + index for index in range(len(values))]
    records = [record(index, b"k", "h", value=value) for index, value in enumerate(values)]
    good = [index for index, value in enumerate(values) if value is not None and value < b"\x80"]
    bad = [index for index, value in enumerate(values) if value is not None and value >= b"\x80"]
    skipped = row_maker(SimpleStringSchema(), ErrorPolicy.SKIP).make(
        "t-0", values, stamps, range(len(values))
    )
    maker = row_maker(SimpleStringSchema(), ErrorPolicy.DEAD_LETTER)
    assert maker.takes_records
    aside = maker.make("t-0", records, stamps, range(len(values)))
    for found in (skipped, aside):
        assert found.rows == [(values[index] or b"").decode() for index in good]
        assert list(found.timestamps) == [stamps[index] for index in good]
        assert found.num_errors == len(bad)
    assert not skipped.letters
    assert [letter.position for letter in aside.letters] == bad
    for letter in aside.letters:
        assert (letter.split, letter.key, letter.headers) == ("t-0", b"k", (("h", b"v"),))
        assert letter.raw == values[letter.position] and letter.timestamp == letter.position
        assert "UnicodeDecodeError" in letter.error and "UnicodeDecodeError" in letter.traceback


def test_rows_of_a_record_that_fails_half_way_are_taken_back() -> None:
    class HalfWay(Headers):
        def deserialize(self, record: ConsumerRecord) -> Iterator[tuple[Any, ...]]:
            yield from super().deserialize(record)
            if record.key == b"late":
                raise ValueError("too late")

    records = [record(3, b"late", "x"), record(4, b"k", "y"), record(5, b"bad", "z")]
    found = row_maker(HalfWay(), ErrorPolicy.DEAD_LETTER).make("t-0", records, [3, 4, 5], [3, 4, 5])
    assert found.rows == [("t", 4, "y", b"v")]
    assert (list(found.timestamps), found.num_errors) == ([4], 2)
    assert [letter.error for letter in found.letters] == ["ValueError: too late", "ValueError: no good key"]
    # The user's own frame is there.
    assert "raise ValueError" in found.letters[0].traceback and "HalfWay" not in found.letters[1].traceback


def test_dead_letters_leave_ends_tombstones_and_what_the_schema_leaves_out_as_they_are() -> None:
    values = [b"a", None, b"stop", b"b"]
    records = [record(index, b"k", value=value) for index, value in enumerate(values)]
    maker = row_maker(UpToStop(), ErrorPolicy.DEAD_LETTER)
    assert maker.make("t-0", records, [0, 1, 2, 3], range(4)) == (["a"], [0], 0, True, [])
    row_type = Types.ROW_NAMED(["n"], [Types.INT()])
    schema = JsonRowDeserializationSchema.builder().type_info(row_type).ignore_parse_errors().build()
    records = [record(0, b"k", value=b"{"), record(1, b"k", value=b'{"n": 2}')]
    found = row_maker(schema, ErrorPolicy.DEAD_LETTER).make("t-0", records, [0, 1], range(2))
    assert ([row[0] for row in found.rows], list(found.timestamps), found.num_errors) == ([2], [1], 1)
    assert not found.letters


def test_a_columnar_schema_gives_record_batches() -> None:
    row_type = Types.ROW_NAMED(["n"], [Types.INT()])
    schema = JsonColumnsDeserializationSchema(row_type)
    whole = made(schema, b'{"n": 1}', b'{"n": 2}')
    assert isinstance(whole.rows, pa.RecordBatch) and whole.rows.to_pylist() == [{"n": 1}, {"n": 2}]
    holed = made(schema, b'{"n": 1}', None, b'{"n": 3}')
    assert isinstance(holed.rows, pa.RecordBatch) and holed.rows.to_pylist() == [{"n": 1}, {"n": 3}]
    assert list(holed.timestamps) == [100, 102]
    with pytest.raises(
        KafkaRecordError, match="the record at offset 11 of t-0 cannot be deserialized by JsonCol"
    ):
        made(schema, b'{"n": 1}', b'{"n": "x"}', b'{"n": 3}')
    skipping = row_maker(schema, ErrorPolicy.SKIP).make("t-0", [b'{"n": 1}', b"{"], [5, 6], [0, 1])
    assert isinstance(skipping.rows, pa.RecordBatch) and skipping.rows.to_pylist() == [{"n": 1}]
    assert (list(skipping.timestamps), skipping.num_errors) == ([5], 1)


class StopsAtSemicolon(SimpleStringSchema):
    """Its chunks are decoded at once, and `deserialize` ends a list by mistake."""

    def deserialize(self, message: bytes) -> str:
        return next(part for part in message.decode().split(";") if part)


@pytest.mark.parametrize("policy", [ErrorPolicy.SKIP, ErrorPolicy.FAIL])
def test_a_schema_that_raises_stop_iteration_loses_no_record_behind_it(policy: ErrorPolicy) -> None:
    maker = row_maker(StopsAtSemicolon(), policy)
    messages = [b"a", b";", b"c", b"d"]
    if policy is ErrorPolicy.FAIL:
        with pytest.raises(KafkaRecordError, match="StopIteration"):
            maker.make("t-0", messages, [1, 2, 3, 4], range(4))
    else:
        assert maker.make("t-0", messages, [1, 2, 3, 4], range(4)) == MadeRows(
            ["a", "c", "d"], [1, 3, 4], 1, False
        )


@pytest.mark.parametrize("split", ["orders-2-7", "west-1/orders-2-7"])
def test_a_letter_of_any_cluster_is_read_as_a_record_of_its_topic(split: str) -> None:
    letter = DeadLetter(split=split, position=5, raw=b"x", error="e", traceback="t")

    class Place(Headers):
        def deserialize(self, record: ConsumerRecord) -> Iterator[Any]:
            yield record.topic, record.partition

    assert list(letter_reader(Place(), ErrorPolicy.FAIL)(letter).rows) == [("orders-2", 7)]
