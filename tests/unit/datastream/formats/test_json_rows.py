"""Rows decoded in one step are those of two steps, values and errors alike."""

from __future__ import annotations

import json
import pickle
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.json_rows import JsonColumnsDeserializationSchema, row_decoder
from yarrow.datastream.formats.values import json_decoder, row_reader

TYPES = [
    Types.STRING(),
    Types.BOOLEAN(),
    Types.BYTE(),
    Types.SHORT(),
    Types.INT(),
    Types.LONG(),
    Types.FLOAT(),
    Types.DOUBLE(),
    Types.CHAR(),
    Types.BIG_DEC(),
    Types.LIST(Types.INT()),
]
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.sampled_from([127, 128, -129, 2**15, 2**31 - 1, 2**31, 2**63, -(2**63), 10**30]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=3),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 3), max_size=2),
)
NAMES = ["a", "b c", "class"]


def outcome(decode: Any, message: bytes) -> Any:
    """The Row with the classes of its values, or the error."""
    try:
        row = decode(message)
    except (ValueError, msgspec.DecodeError, OverflowError) as error:
        return type(error).__name__, str(error)
    return row, row.get_field_names(), [type(value) for value in row]


@given(
    st.lists(st.sampled_from(TYPES), min_size=1, max_size=3),
    st.one_of(st.dictionaries(st.sampled_from([*NAMES, "other"]), VALUES, max_size=4), VALUES),
    st.booleans(),
    st.booleans(),
)
@example([Types.DOUBLE()], {"a": 10**400}, False, True)
@example([Types.DOUBLE()], {"a": 2**64 + 1}, False, True)
def test_one_step_gives_what_two_give(
    types: list[TypeInformation], value: Any, missing_is_error: bool, named: bool
) -> None:
    row_type = Types.ROW_NAMED(NAMES[: len(types)], types) if named else Types.ROW(types)
    if not named and isinstance(value, dict):
        value = {f"f{NAMES.index(key)}": part for key, part in value.items() if key in NAMES}
    message = json.dumps(value).encode()
    decode, read = json_decoder(row_type), row_reader(row_type, missing_is_error)
    expected = outcome(lambda text: read(decode(text)), message)
    assert outcome(row_decoder(row_type, missing_is_error), message) == expected


@pytest.mark.parametrize("message", [b"{", b"", b'{"a": 1} x', b'{"a": "\xff"}', b'{"a": 1, "a": 2}'])
def test_texts_that_are_no_json_are_refused_alike(message: bytes) -> None:
    row_type = Types.ROW_NAMED(["a"], [Types.INT()])
    decode, read = json_decoder(row_type), row_reader(row_type, False)
    assert outcome(row_decoder(row_type, False), message) == outcome(lambda text: read(decode(text)), message)


def test_rows_do_not_share_their_values() -> None:
    decode = row_decoder(Types.ROW_NAMED(["a"], [Types.INT()]), False)
    first, second = decode(b'{"a": 1}'), decode(b'{"a": 1}')
    first["a"] = 2
    assert (first, second) == (Row(a=2), Row(a=1))


PAYMENT = Types.ROW_NAMED(["user", "amount"], [Types.INT(), Types.DOUBLE()])


@pytest.mark.parametrize(
    "messages",
    [
        [b'{"user": 1, "amount": 2.5}', b'{"amount": 3}', b'{"user": null, "more": [1]}'],
        [b'{"user": 1,\n "amount": 2.5}', b'{"user": 2}'],
        [b' {"user": 1}', b'{"user": 2}'],
        [],
    ],
)
def test_columns_are_those_of_the_rows(messages: list[bytes]) -> None:
    schema = JsonColumnsDeserializationSchema(PAYMENT)
    batch = pickle.loads(pickle.dumps(schema)).deserialize_batch(messages)
    assert batch.schema == schema.produced_schema()
    rows = [schema.deserialize(message) for message in messages]
    assert batch.to_pylist() == [row.as_dict() for row in rows]


@pytest.mark.parametrize(
    "bad", [b"", b" ", b"{", b'{"user": 1}{"user": 2}', b'{"user": 3000000000}', b'{"user": "1"}']
)
def test_columns_refuse_what_rows_refuse(bad: bytes) -> None:
    schema = JsonColumnsDeserializationSchema(PAYMENT)
    for messages in ([bad], [b'{"user": 1}', bad], [b'{"user": 1}{"user": 2}', bad]):
        with pytest.raises(FileFormatError, match="no JSON object of the declared type"):
            schema.deserialize_batch(messages)
