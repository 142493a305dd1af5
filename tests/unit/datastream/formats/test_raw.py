"""Raw values as messages: the bytes of each type in both orders, and what does not fit."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.formats.raw import RawSchema
from yarrow.runtime.common.errors import InvalidProgramError

BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())


@pytest.mark.parametrize(
    ("type_info", "value", "big"),
    [
        (Types.BYTE(), -2, "fe"),
        (Types.SHORT(), 258, "0102"),
        (Types.INT(), -2, "fffffffe"),
        (Types.LONG(), 258, "0000000000000102"),
        (Types.FLOAT(), 1.5, "3fc00000"),
        (Types.DOUBLE(), -2.0, "c000000000000000"),
        (Types.BOOLEAN(), True, "01"),
        (Types.BOOLEAN(), False, "00"),
    ],
)
def test_a_number_has_the_bytes_of_its_type_in_both_orders(
    type_info: TypeInformation, value: Any, big: str
) -> None:
    for endianness, expected in (
        ("big-endian", bytes.fromhex(big)),
        ("little-endian", bytes.fromhex(big)[::-1]),
    ):
        schema = pickle.loads(pickle.dumps(RawSchema(type_info, endianness=endianness)))
        assert schema.serialize(value) == expected
        found = schema.deserialize(expected)
        assert (found, type(found)) == (value, type(value))
        assert schema.get_produced_type() == type_info


def test_texts_and_bytes_are_as_they_are() -> None:
    text = RawSchema(Types.STRING(), charset="UTF-16BE")
    assert text.serialize("\u00e9a") == b"\x00\xe9\x00a"
    assert text.deserialize(b"\x00\xe9\x00a") == "\u00e9a"
    data = RawSchema(BYTES)
    assert data.serialize(bytearray(b"ab")) == data.deserialize(b"ab") == b"ab"


@given(st.integers(-(2**63), 2**63 - 1), st.sampled_from(["big-endian", "little-endian"]))
def test_a_long_written_is_a_long_read(value: int, endianness: str) -> None:
    schema = RawSchema(Types.LONG(), endianness=endianness)
    assert schema.deserialize(schema.serialize(value)) == value


@pytest.mark.parametrize(
    ("type_info", "message", "error"),
    [
        (Types.INT(), b"abc", "a raw value of Integer is expected: 4 bytes are expected, not 3: b'abc'"),
        (Types.LONG(), b"abcdefghi", "8 bytes are expected, not 9"),
        (Types.STRING(), b"\xff", "a raw value of String is expected: 'utf-8' codec"),
    ],
)
def test_a_message_that_does_not_fit_is_an_error(
    type_info: TypeInformation, message: bytes, error: str
) -> None:
    with pytest.raises(FileFormatError) as failed:
        RawSchema(type_info).deserialize(message)
    assert error in str(failed.value)


@pytest.mark.parametrize(
    ("type_info", "value"),
    [
        (Types.BYTE(), 128),
        (Types.INT(), None),
        (Types.INT(), True),
        (Types.INT(), 1.0),
        (Types.FLOAT(), 1e39),
        (Types.BOOLEAN(), "x"),
        (Types.STRING(), b"x"),
        (Types.STRING(), None),
        (BYTES, "x"),
        (BYTES, 3),
    ],
)
def test_a_value_that_does_not_fit_is_not_written(type_info: TypeInformation, value: Any) -> None:
    with pytest.raises(FileFormatError, match=r"a value of .* is expected, not"):
        RawSchema(type_info).serialize(value)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(ValueError, match='must be "big-endian" or "little-endian", not \'middle\''):
        RawSchema(Types.INT(), endianness="middle")
    with pytest.raises(LookupError):
        RawSchema(Types.STRING(), charset="none such")
    with pytest.raises(InvalidProgramError, match="has no raw form; give STRING"):
        RawSchema(Types.BIG_DEC())
