"""`deserialize_many` gives what `deserialize` gives of each message, and raises where one of them cannot be read."""

from __future__ import annotations

import json
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common import Row, SimpleStringSchema, Types
from yarrow.common.serialization import DeserializationSchema
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.json import JsonRowDeserializationSchema

PAYMENT = Types.ROW_NAMED(["user", "name", "amount"], [Types.INT(), Types.STRING(), Types.DOUBLE()])
UNNAMED = Types.ROW([Types.INT(), Types.STRING(), Types.LIST(Types.LONG())])
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "user": st.none() | st.integers(-(2**31), 2**31 - 1),
        "name": st.none() | st.text(),
        "amount": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "other": st.integers(0, 9),
    },
)


def json_schema(row_type: Any) -> JsonRowDeserializationSchema:
    return JsonRowDeserializationSchema.builder().type_info(row_type).build()


@given(st.lists(OBJECTS, max_size=20))
def test_rows_of_many_objects_are_those_of_each(objects: list[dict[str, Any]]) -> None:
    schema = json_schema(PAYMENT)
    messages = [json.dumps(each).encode() for each in objects]
    many, each = schema.deserialize_many(messages), [schema.deserialize(message) for message in messages]
    assert many == each
    assert pickle.dumps(many) == pickle.dumps(each)
    # No row shares its values with another one.
    assert len({id(row._values) for row in many if row is not None}) == len(many)


def test_types_that_need_two_steps_are_read_one_by_one() -> None:
    messages = [b'{"f0": 1, "f1": "a", "f2": [1, 2]}', b"{}"]
    assert json_schema(UNNAMED).deserialize_many(messages) == [Row(1, "a", [1, 2]), Row(None, None, None)]


@pytest.mark.parametrize(
    ("schema", "bad"),
    [(json_schema(PAYMENT), b'{"user": "x"}'), (json_schema(UNNAMED), b"?"), (SimpleStringSchema(), b"\xff")],
)
def test_a_message_that_cannot_be_read_is_an_error(schema: DeserializationSchema[Any], bad: bytes) -> None:
    good = b"{}"
    assert len(schema.deserialize_many([good, good])) == 2
    with pytest.raises((ValueError, msgspec.DecodeError, FileFormatError)):
        schema.deserialize_many([good, bad, good])


class Loud(SimpleStringSchema):
    """Reads single messages in its own way."""

    def deserialize(self, message: bytes) -> str:
        return super().deserialize(message).upper()


class Renamed(JsonRowDeserializationSchema):
    """Reads single messages in its own way."""

    def deserialize(self, message: bytes) -> Row | None:
        row = super().deserialize(message)
        assert row is not None
        row.name = "renamed"
        return row


def test_a_subclass_with_an_own_deserialize_keeps_it() -> None:
    assert Loud().deserialize_many([b"a", b"b"]) == ["A", "B"]
    assert SimpleStringSchema("latin-1").deserialize_many([b"\xfc"]) == ["ü"]
    (row,) = Renamed(PAYMENT).deserialize_many([b'{"name": "x"}'])
    assert row is not None and row.name == "renamed"
