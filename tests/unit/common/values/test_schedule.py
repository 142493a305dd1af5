"""Times of schedules: intervals, cron expressions in time zones, and the days on which clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.values.schedule import InvalidScheduleError, Schedule


def ms(text: str) -> int:
    """Epoch milliseconds of an ISO time; UTC where it says no offset."""
    time = datetime.fromisoformat(text)
    return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def local(times: list[int], zone: str) -> list[str]:
    return [datetime.fromtimestamp(time / 1000, ZoneInfo(zone)).isoformat() for time in times]


def test_intervals_are_counted_from_their_start() -> None:
    hourly = Schedule.every("1 h")
    start = ms("2026-11-23T11:14:07")
    assert hourly.next_after(start - 1, start) == start
    assert hourly.next_after(start, start) == start + 3_600_000
    assert hourly.next_after(start + 3 * 3_600_000 + 5, start) == start + 4 * 3_600_000
    assert list(islice(hourly.times_after(start, start), 2)) == [start + 3_600_000, start + 7_200_000]
    assert Schedule.every(timedelta(minutes=90)) == Schedule.every("PT1H30M")


@given(st.integers(1000, 10**9), st.integers(0, 10**13), st.integers(-(10**12), 10**13))
def test_the_next_time_of_an_interval_is_the_first_one_behind(interval: int, start: int, after: int) -> None:
    found = Schedule(interval_ms=interval).next_after(after, start)
    assert found > after and found >= start and (found - start) % interval == 0
    assert found == start or found - interval <= after


def test_a_cron_expression_means_the_clock_of_its_zone() -> None:
    report = Schedule.of_cron("30 3 * * mon-fri", "America/New_York")
    times = list(islice(report.times_after(ms("2026-11-20T12:00")), 3))
    assert local(times, "America/New_York") == [
        "2026-11-23T03:30:00-05:00",
        "2026-11-24T03:30:00-05:00",
        "2026-11-25T03:30:00-05:00",
    ]
    assert report.next_after(times[0]) == times[1]
    assert report.next_after(times[0] - 1) == times[0]
    assert report.next_after(times[0] + 500) == times[1]


def test_a_run_is_told_its_time_on_the_clock_of_its_zone() -> None:
    assert Schedule.of_cron("30 3 * * *", "America/New_York").due_parameters(ms("2026-11-24T03:30")) == {
        "due_time": "2026-11-23T22:30:00-05:00",
        "due_date": "2026-11-23",
    }
    assert Schedule.every("1 min").due_parameters(1_500) == {
        "due_time": "1970-01-01T00:00:01+00:00",
        "due_date": "1970-01-01",
    }


def test_seconds_may_come_first() -> None:
    assert Schedule.of_cron("15 0 12 * * *").next_after(ms("2026-01-01T00:00")) == ms("2026-01-01T12:00:15")


def test_a_time_that_the_clock_skips_is_due_when_the_clock_goes_on() -> None:
    nightly = Schedule.of_cron("30 2 * * *", "Europe/Berlin")
    times = list(islice(nightly.times_after(ms("2026-03-28T12:00")), 2))
    # On 29 March 2026 the clock goes from 02:00 to 03:00.
    assert local(times, "Europe/Berlin") == ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]


def test_a_time_that_comes_twice_is_due_once() -> None:
    nightly = Schedule.of_cron("30 2 * * *", "Europe/Berlin")
    # On 25 October 2026 the clock goes from 03:00 back to 02:00.
    times = list(islice(nightly.times_after(ms("2026-10-24T12:00")), 2))
    assert local(times, "Europe/Berlin") == ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]
    # Also when the question comes between both.
    between = ms("2026-10-25T02:45+01:00")
    assert local([nightly.next_after(between)], "Europe/Berlin") == ["2026-10-26T02:30:00+01:00"]
    again = ms("2026-10-25T02:10+01:00")
    assert local([nightly.next_after(again)], "Europe/Berlin") == ["2026-10-26T02:30:00+01:00"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("30 0 2 * * *", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:30+02:00"]),
        ("*/20 15 2 * * *", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:15:00+02:00"]),
        ("5 0 2-3 * * *", ["2026-03-29T03:00:00+02:00", "2026-03-29T03:00:05+02:00"]),
    ],
)
def test_seconds_change_nothing_of_a_time_that_the_clock_skips(expression: str, expected: list[str]) -> None:
    schedule = Schedule.of_cron(expression, "Europe/Berlin")
    times = list(islice(schedule.times_after(ms("2026-03-28T12:00")), 2))
    assert local(times, "Europe/Berlin") == expected


def test_seconds_change_nothing_of_a_time_that_comes_twice() -> None:
    nightly = Schedule.of_cron("15 30 2 * * *", "Europe/Berlin")
    times = list(islice(nightly.times_after(ms("2026-10-24T12:00")), 2))
    assert local(times, "Europe/Berlin") == ["2026-10-25T02:30:15+02:00", "2026-10-26T02:30:15+01:00"]
    again = ms("2026-10-25T02:10+01:00")
    assert local([nightly.next_after(again)], "Europe/Berlin") == ["2026-10-26T02:30:15+01:00"]
    half_an_hour = Schedule.of_cron("1 15 2 * * *", "Australia/Lord_Howe")
    times = list(islice(half_an_hour.times_after(ms("2027-10-02T12:00")), 2))
    assert local(times, "Australia/Lord_Howe") == ["2027-10-03T02:30:00+11:00", "2027-10-04T02:15:01+11:00"]


@pytest.mark.parametrize(
    ("before", "after", "hours"),
    [("2026-03-28T23:59", "2026-03-29T22:01", 23), ("2026-10-24T22:59:59", "2026-10-25T23:00", 24)],
)
def test_every_hour_follows_the_time_that_passes(before: str, after: str, hours: int) -> None:
    hourly = Schedule.of_cron("0 * * * *", "Europe/Berlin")
    times = []
    for time in hourly.times_after(ms(before)):
        if time >= ms(after):
            break
        times.append(time)
    assert [later - former for former, later in pairwise(times)] == [3_600_000] * (len(times) - 1)
    assert len(times) == hours


@given(
    st.sampled_from(["30 2 * * *", "*/20 * * * *", "0 0 1 * *", "5,35 1-3 * * sun", "10 0 2 * * *"]),
    st.sampled_from(["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kolkata", "UTC"]),
    st.integers(ms("2025-01-01T00:00"), ms("2027-12-31T00:00")),
)
def test_times_rise_and_none_is_left_out(expression: str, zone: str, after: int) -> None:
    schedule = Schedule.of_cron(expression, zone)
    times = list(islice(schedule.times_after(after), 4))
    assert times == sorted(set(times)) and times[0] > after
    # Whoever asks again behind each time gets the same times.
    asked: list[int] = []
    while len(asked) < 4:
        after = schedule.next_after(after)
        asked.append(after)
    assert asked == times


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Schedule(), "give one of the two"),
        (lambda: Schedule(interval_ms=5000, cron="* * * * *"), "give one of the two"),
        (lambda: Schedule.every("10 ms"), "expected 1 s at least"),
        (lambda: Schedule.every("0"), "is 0 ms: expected 1 s at least"),
        (lambda: Schedule.every(timedelta()), "is 0 ms: expected 1 s at least"),
        (lambda: Schedule.every("soon"), "'soon' cannot be read.*as 10 min"),
        (lambda: Schedule.of_cron("61 * * * *"), "'61 \\* \\* \\* \\*' cannot be read: Bad minute.*0 3"),
        (lambda: Schedule.of_cron("* * *"), "Wrong number of fields"),
        (lambda: Schedule.of_cron("0 0 31 2 *"), "0 0 31 2"),
        (lambda: Schedule.of_cron("0 3 * * *", "Europe/Berlinn"), "no time zone 'Europe/Berlinn'"),
        (lambda: Schedule.of_cron("0 3 * * *", "../etc/passwd"), "no time zone"),
        (lambda: Schedule.of_cron("0 3 * * *", ""), "no time zone"),
    ],
)
def test_what_is_no_schedule_is_named(make: object, message: str) -> None:
    with pytest.raises(InvalidScheduleError, match=message):
        make()  # type: ignore[operator]
