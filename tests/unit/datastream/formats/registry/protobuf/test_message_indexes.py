"""The path of a message in the head: bytes of Confluent's documentation, round trips, damage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.datastream.formats.registry.protobuf.message_indexes import encoded, indexes_at

PATHS = st.lists(st.integers(0, 2**30), min_size=1, max_size=5).map(tuple)


@pytest.mark.parametrize(
    ("path", "content"),
    [((0,), b"\0"), ((1,), b"\x02\x02"), ((1, 0), b"\x04\x02\x00"), ((64,), b"\x02\x80\x01")],
)
def test_bytes_of_paths(path: tuple[int, ...], content: bytes) -> None:
    assert encoded(path) == content
    assert indexes_at(content, 0) == (path, len(content))


@given(PATHS, st.binary(max_size=5), st.binary(max_size=5))
def test_paths_are_read_as_they_are_written(path: tuple[int, ...], before: bytes, behind: bytes) -> None:
    content = encoded(path)
    place = len(before)
    assert indexes_at(before + content + behind, place) == (path, place + len(content))


@pytest.mark.parametrize(
    "content", [b"", b"\x04\x02", b"\x80\x80\x80\x80\x80\x00", b"\x01", b"\x02\x01", b"\xfe\x7f"]
)
def test_damage_is_told(content: bytes) -> None:
    with pytest.raises(ValueError, match="message ind"):
        indexes_at(content, 0)
