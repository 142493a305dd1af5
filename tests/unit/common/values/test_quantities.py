"""Sizes and durations: Flink's forms are read exactly, and every value survives being written and read."""

from __future__ import annotations

import datetime
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.config_options import ConfigOptions
from yarrow.common.configuration import Configuration
from yarrow.common.values.quantities import Duration, MemorySize
from yarrow.common.values.value_types import DURATION, MEMORY_SIZE
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import InvalidOptionValue
from yarrow.runtime.config.values.option import optional

KIB = 1 << 10
SIZE_UNITS = {
    1: ("", "b", "bytes"),
    KIB: ("k", "kb", "kibibytes"),
    KIB**2: ("m", "mb", "mebibytes"),
    KIB**3: ("g", "gb", "gibibytes"),
    KIB**4: ("t", "tb", "tebibytes"),
}
TIME_UNITS = {
    1: ("ns", "nanos", "nanosecond"),
    10**3: ("us", "µs", "μs", "micros"),
    10**6: ("", "ms", "milli", "milliseconds"),
    10**9: ("s", "sec", "second", "seconds"),
    60 * 10**9: ("m", "min", "minute", "minutes"),
    3600 * 10**9: ("h", "hour", "hours"),
    86400 * 10**9: ("d", "day", "days"),
}
numbers = st.integers(min_value=0, max_value=2**63)
spaces = st.sampled_from(["", " ", "  "])


def unit_of(units: Mapping[int, tuple[str, ...]]) -> st.SearchStrategy[tuple[int, str]]:
    return st.sampled_from([(factor, name) for factor, names in units.items() for name in names])


@given(numbers)
def test_a_size_survives_writing_and_reading(number: int) -> None:
    assert MemorySize.parse(str(MemorySize(number))) == MemorySize(number)


@given(numbers)
def test_a_duration_survives_writing_and_reading(number: int) -> None:
    assert Duration.parse(str(Duration(number))) == Duration(number)


@given(numbers, unit_of(SIZE_UNITS), spaces, st.booleans())
def test_every_unit_of_memory(number: int, unit: tuple[int, str], space: str, upper: bool) -> None:
    factor, name = unit
    text = f"{space}{number}{space}{name.upper() if upper else name}{space}"
    assert MemorySize.parse(text).bytes == number * factor


@given(numbers, unit_of(TIME_UNITS), spaces, st.booleans())
def test_every_unit_of_time(number: int, unit: tuple[int, str], space: str, upper: bool) -> None:
    factor, name = unit
    shown = name.upper() if upper and name.isascii() else name
    assert Duration.parse(f"{space}{number}{space}{shown}{space}").nanos == number * factor


@given(
    st.integers(0, 400),
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 99),
    st.integers(0, 999_999_999),
)
def test_iso_durations(days: int, hours: int, minutes: int, seconds: int, fraction: int) -> None:
    text = f"P{days}DT{hours}H{minutes}M{seconds}.{fraction:09d}S"
    expected = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    assert Duration.parse(text).nanos == expected * 10**9 + fraction


@pytest.mark.parametrize(
    ("text", "nanos"),
    [("PT10S", 10**10), ("pt1m", 60 * 10**9), ("P2D", 172800 * 10**9), ("PT0.5S", 5 * 10**8)],
)
def test_shorter_iso_durations(text: str, nanos: int) -> None:
    assert Duration.parse(text).nanos == nanos


@pytest.mark.parametrize(
    "text", ["", "gb", "1.5 gb", "-1 mb", "1 xb", "1 g b", "0x10", "1_000", "\u0661 mb", "1 s"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="memory"):
        MemorySize.parse(text)


@pytest.mark.parametrize(
    "text", ["", "ms", "1.5 s", "-1 s", "1 fortnight", "1 mb", "P", "PT", "P1DT", "P1W", "P1Y", "1 s 2"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match=r"time|ISO 8601"):
        Duration.parse(text)


def test_a_negative_size_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="negative"):
        MemorySize(-1)


def test_a_bare_number_counts_in_the_default_unit() -> None:
    assert Duration.parse("3600", default_unit="s") == Duration.of_seconds(3600)
    assert Duration.parse("3600") == Duration.of_millis(3600)
    assert MemorySize.parse("1024") == MemorySize(1024)


def test_views() -> None:
    duration = Duration.parse("1500 ms")
    assert (duration.seconds, duration.millis) == (1.5, 1500)
    assert duration.to_timedelta() == datetime.timedelta(seconds=1.5)
    assert MemorySize.parse("1g").mebibytes == 1024
    assert MemorySize.parse("1536 kb").human() == "1.5 mb"
    assert str(MemorySize(0)) == "0 bytes"
    assert str(Duration(0)) == "0 ms"
    assert (
        repr(Duration.of_minutes(-15)) == "Duration(-15 min)" and repr(MemorySize(1024)) == "MemorySize(1 kb)"
    )


SIZES = ["2 gib", "5 mib", "1 byte", "1 kibibyte", "1g", "512 MB", "1024"]
DURATIONS = ["2 mins", "1 secs", "PT1,5S", "7 \u03bcs", "7 \u00b5s", "10", "3 h"]


@pytest.mark.parametrize("text", SIZES)
def test_a_program_reads_a_size_as_the_engine_does(text: str) -> None:
    values = {"k": text}
    wanted = Settings(values).get(optional("k", MEMORY_SIZE, "a size"))
    assert (
        Configuration.from_dict(values).get(ConfigOptions.key("k").memory_type().no_default_value()) == wanted
    )
    assert wanted == MemorySize.parse(text)


@pytest.mark.parametrize("text", DURATIONS)
def test_a_program_reads_a_duration_as_the_engine_does(text: str) -> None:
    values = {"k": text}
    wanted = Settings(values).get(optional("k", DURATION, "a length"))
    assert (
        Configuration.from_dict(values).get(ConfigOptions.key("k").duration_type().no_default_value())
        == wanted
    )
    assert wanted == Duration.parse(text)


@pytest.mark.parametrize("text", ["\u0661 mb", "1_000", "1 xb"])
def test_a_program_refuses_a_size_that_the_engine_refuses(text: str) -> None:
    with pytest.raises(InvalidOptionValue, match="k"):
        Settings({"k": text}).get(optional("k", MEMORY_SIZE, "a size"))
    with pytest.raises(ValueError, match=r"k: .* is no MemorySize .*: expected a size with a unit"):
        Configuration.from_dict({"k": text}).get(ConfigOptions.key("k").memory_type().no_default_value())
