"""Decoding: damaged bytes, class changes, and what tools without the job's classes see."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.stored_keys import EnumKey, RecordKey, decode_key, inspect_key
from tests.unit.runtime.data import key_examples
from tests.unit.runtime.data.key_examples import Colour, Place, keys
from yarrow.runtime.data.errors import KeyDecodeError
from yarrow.runtime.data.key_classes import set_main_module
from yarrow.runtime.data.keys import canonicalize, decode_key_from, encode_key


@given(st.binary(max_size=40))
@example(b"")
@example(b"\x01\x0c\xff\xff\xff\xff")
@example(b"\x01" + b"\x0c\x00\x00\x00\x01" * 200)
@example(b"\x01\x08\x7f\xff\xff\xff\xff\xff\xff\xff")
def test_damaged_bytes_end_in_a_typed_error_or_a_key(data: bytes) -> None:
    for version in (data, b"\x01" + data):
        try:
            inspect_key(version)
        except KeyDecodeError:
            continue


@given(keys, keys)
def test_self_delimiting(first: Any, second: Any) -> None:
    a, b = encode_key(canonicalize(first)), encode_key(canonicalize(second))
    key, end = decode_key_from(a + b, 0)
    assert end == len(a)
    assert encode_key(key) == a
    other, end = decode_key_from(a + b, end)
    assert encode_key(other) == b
    assert end == len(a) + len(b)
    with pytest.raises(KeyDecodeError, match="followed"):
        decode_key(a + b)


@given(keys)
def test_truncated_bytes_are_refused(key: Any) -> None:
    encoded = encode_key(canonicalize(key))
    for end in range(len(encoded)):
        with pytest.raises(KeyDecodeError):
            decode_key(encoded[:end])


def test_another_version_is_named() -> None:
    with pytest.raises(KeyDecodeError, match="version 2"):
        decode_key(b"\x02" + encode_key(1)[1:])


def test_inspection_needs_no_class() -> None:
    module = key_examples.__name__
    assert inspect_key(encode_key(Place("x", 2))) == RecordKey(
        f"{module}:Place", (("name", "x"), ("number", 2))
    )
    assert inspect_key(encode_key(Colour.CRIMSON)) == EnumKey(f"{module}:Colour", "RED")


@dataclass(frozen=True)
class Before:
    a: int
    b: int


@dataclass(frozen=True)
class After:
    a: int
    c: int


class Smaller(enum.Enum):
    ONLY = 1


def _renamed(encoded: bytes, old: str, new: str) -> bytes:
    assert len(old) == len(new)
    return encoded.replace(old.encode(), new.encode())


def test_a_changed_or_missing_class_is_named() -> None:
    stored = _renamed(encode_key(Before(1, 2)), ":Before", ":Aftera").replace(b":Aftera", b":After_")
    with pytest.raises(KeyDecodeError, match="After_ is not found"):
        decode_key(stored)
    stored = _renamed(encode_key(After(1, 2)), "\x01c", "\x01d")
    with pytest.raises(KeyDecodeError, match=r"\['a', 'd'\] and now has \['a', 'c'\]"):
        decode_key(stored)
    stored = _renamed(encode_key(Smaller.ONLY), "ONLY", "GONE")
    with pytest.raises(KeyDecodeError, match="no member GONE"):
        decode_key(stored)


def test_the_main_module_has_a_lasting_name(monkeypatch: pytest.MonkeyPatch) -> None:
    import __main__

    made: Any = dataclass(frozen=True)(
        type("Trip", (), {"__annotations__": {"origin": str}, "__module__": "__main__"})
    )
    monkeypatch.setattr(__main__, "Trip", made, raising=False)
    key: Any = made("JFK")
    set_main_module("delays")
    try:
        encoded = encode_key(canonicalize(key))
        assert b"delays:Trip" in encoded
        assert decode_key(encoded) == key
    finally:
        set_main_module(None)
    assert b"__main__:Trip" in encode_key(canonicalize(key))
