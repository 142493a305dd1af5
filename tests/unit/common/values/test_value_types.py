"""Value types: what they read, what they refuse, and that a written value reads as itself."""

from __future__ import annotations

import enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.values.quoted_lists import join_quoted, split_quoted
from yarrow.common.values.value_types import (
    BOOLEAN,
    DIRECTORIES,
    MAP,
    PORT,
    PORT_RANGE,
    STRING,
    STRINGS,
    PortRange,
    enum_of,
    floating,
    integer,
    list_of,
)


class Colour(enum.Enum):
    DEEP_RED = "deep-red"
    BLUE = "blue"


@given(st.lists(st.text()), st.sampled_from([";", ",", ",;", ",|:"]))
def test_lists_survive_writing_and_reading(parts: list[str], separators: str) -> None:
    assert split_quoted(join_quoted(parts, separators), separators) == parts


words = st.text("abcdefghijklmnopqrstuvwxyz .-;'", min_size=1).filter(lambda text: bool(text.strip()))


@given(st.lists(words, max_size=5))
def test_the_list_type_survives_writing_and_reading(parts: list[str]) -> None:
    assert STRINGS.parse(STRINGS.render(tuple(parts))) == tuple(parts)


@given(st.dictionaries(st.text("abc.-", min_size=1), st.text("abc,;'\"/_-")))
def test_maps_survive_writing_and_reading(pairs: dict[str, str]) -> None:
    assert MAP.parse(MAP.render(pairs)) == pairs


@given(
    st.lists(
        st.tuples(st.integers(0, 65535), st.integers(0, 65535)).map(lambda p: (min(p), max(p))), min_size=1
    )
)
def test_port_ranges_survive_writing_and_reading(intervals: list[tuple[int, int]]) -> None:
    ports = PortRange(tuple(intervals))
    assert PORT_RANGE.parse(PORT_RANGE.render(ports)) == ports


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_survive_writing_and_reading(number: float) -> None:
    type_ = floating()
    assert type_.parse(type_.render(number)) == number


def test_port_ranges() -> None:
    ports = PortRange.parse("50100, 50200-50202")
    assert list(ports) == [50100, 50200, 50201, 50202]
    assert 50201 in ports
    assert 50203 not in ports
    assert PortRange.parse("0").is_any
    assert PortRange.parse("8081").single == 8081
    assert ports.single is None


@pytest.mark.parametrize("text", ["", "70000", "-1", "80-70", "80-", "a", "80,,90"])
def test_what_is_no_port_range(text: str) -> None:
    with pytest.raises(ValueError, match=r"port|whole number|range"):
        PORT_RANGE.parse(text)


@pytest.mark.parametrize("text", ["65536", "8081.0", "eight"])
def test_what_is_no_port(text: str) -> None:
    with pytest.raises(ValueError, match=r"port|whole number"):
        PORT.parse(text)


def test_booleans_are_true_and_false_only() -> None:
    assert (BOOLEAN.parse("TRUE"), BOOLEAN.parse(" false ")) == (True, False)
    for text in ("yes", "1", "on", ""):
        with pytest.raises(ValueError, match="true"):
            BOOLEAN.parse(text)


def test_enums_are_read_by_value_or_name_in_any_case() -> None:
    colour = enum_of(Colour)
    for text in ("deep-red", "DEEP_RED", "Deep-Red", " deep_red "):
        assert colour.parse(text) is Colour.DEEP_RED
    with pytest.raises(ValueError, match="none of"):
        colour.parse("green")
    assert colour.expected == "one of deep-red, blue"


def test_numbers_have_bounds() -> None:
    with pytest.raises(ValueError, match="less than 1"):
        integer(minimum=1).parse("0")
    with pytest.raises(ValueError, match=r"more than 1\.0"):
        floating(0.0, 1.0).parse("1.5")
    with pytest.raises(ValueError, match="whole number"):
        integer().parse("1e3")
    with pytest.raises(ValueError, match="finite"):
        floating().parse("nan")


def test_lists_in_brackets_and_with_several_separators() -> None:
    assert STRINGS.parse("[a, 'b,c', d]") == ("a", "b,c", "d")
    assert STRINGS.parse("a; 'b;c' ;d") == ("a", "b;c", "d")
    assert DIRECTORIES.parse("/a,/b|/c:/d") == ("/a", "/b", "/c", "/d")


@pytest.mark.parametrize(
    ("text", "directories"),
    [
        ("file:///data/rocks", ("/data/rocks",)),
        ("file:/a:file:///b|FILE://localhost/c", ("/a", "/b", "/c")),
        ("\"file:///a b\";'/b:c'", ("/a b", "/b:c")),
        ("['file:///a', file:///b]", ("/a", "/b")),
        ("/my-profile:/a", ("/my-profile", "/a")),
    ],
)
def test_directories_may_be_uris(text: str, directories: tuple[str, ...]) -> None:
    assert DIRECTORIES.parse(text) == directories
    assert DIRECTORIES.parse(DIRECTORIES.render(directories)) == directories


@pytest.mark.parametrize("text", ["hdfs://name:9000/rocks", "/a,s3://bucket/b", "file://elsewhere/c"])
def test_directories_of_other_machines_are_refused(text: str) -> None:
    uri = text.rpartition(",")[2]
    with pytest.raises(ValueError, match=f"^{uri} is no local directory: write /path or file:///path"):
        DIRECTORIES.parse(text)
    assert list_of(integer()).parse("1;2") == (1, 2)
    with pytest.raises(ValueError, match="not closed"):
        STRINGS.parse("a;'b")
    with pytest.raises(ValueError, match="closing quote"):
        STRINGS.parse("'a'b")


def test_an_empty_text_is_no_string() -> None:
    with pytest.raises(ValueError, match="empty"):
        STRING.parse(" ")


def test_a_map_needs_pairs() -> None:
    with pytest.raises(ValueError, match="key:value"):
        MAP.parse("a:1,b")
