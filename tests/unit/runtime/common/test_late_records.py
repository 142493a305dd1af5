"""Late records in numbers: classes of delays, quantiles, sums over subtasks, and sentences."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.runtime.common.late_records import (
    MOST_NAMED,
    LatePlace,
    LateRecord,
    LateRecords,
    LateRemedy,
    class_of,
    summed_up,
)


def reported(delays: list[int], **fields: object) -> LateRecords:
    """The report of dropped records with these delays."""
    counts: dict[int, int] = {}
    for delay in delays:
        counts[class_of(delay)] = counts.get(class_of(delay), 0) + 1
    report = LateRecords(
        operator="windows",
        remedy=LateRemedy.ALLOWED_LATENESS,
        places={LatePlace.DROPPED: len(delays)} if delays else {},
        delays=counts,
        longest_ms=max(delays, default=0),
        **fields,  # type: ignore[arg-type]
    )
    return report


@given(delay=st.integers(0, 1 << 63))
def test_a_class_is_a_sixteenth_wide_at_most(delay: int) -> None:
    longest = class_of(delay)
    assert delay <= longest <= delay * 17 // 16
    assert class_of(longest) == longest
    assert class_of(longest + 1) > longest


def test_short_delays_are_classes_of_their_own() -> None:
    assert [class_of(delay) for delay in range(33)] == [*range(32), 33]


@given(delays=st.lists(st.integers(1, 100_000), min_size=1, max_size=300), percent=st.integers(1, 100))
def test_the_lateness_keeps_the_share_that_was_asked_for(delays: list[int], percent: int) -> None:
    lateness = reported(delays).lateness_for(percent)
    assert lateness is not None
    # The least delay that covers the share.
    exact = sorted(delays)[-(-len(delays) * percent // 100) - 1]
    assert exact <= lateness <= exact * 17 // 16
    assert lateness <= max(delays)


def test_no_lateness_is_proposed_where_nothing_was_late() -> None:
    assert reported([]).lateness_for(99) is None
    assert reported([]).sentences() == []


def last(*watermarks: int) -> tuple[LateRecord, ...]:
    return tuple(
        LateRecord(key="a", timestamp=0, watermark=watermark, delay_ms=1) for watermark in watermarks
    )


def test_reports_of_subtasks_are_added_up_by_operator() -> None:
    other = LateRecords(operator="join", remedy=LateRemedy.MORE_DISORDER, places={LatePlace.FUNCTION: 1})
    first = reported([5, 70], of_no_window=2, last=last(10, 30), last_ahead=last(4))
    second = LateRecords(
        operator="windows",
        remedy=LateRemedy.ALLOWED_LATENESS,
        places={LatePlace.DROPPED: 1, LatePlace.SIDE_OUTPUT: 3},
        delays={5: 3, 9: 1},
        longest_ms=9,
        ahead=6,
        last=last(*range(11, 11 + MOST_NAMED)),
    )
    total, join = summed_up([first, other, second])
    assert join == other
    assert total.places == {LatePlace.DROPPED: 3, LatePlace.SIDE_OUTPUT: 3}
    assert (total.of_no_window, total.ahead, total.longest_ms) == (2, 6, 70)
    assert total.delays == {5: 4, 71: 1, 9: 1}
    # Those that came last, by the watermark.
    assert [record.watermark for record in total.last] == [*range(12, 11 + MOST_NAMED), 30]
    assert total.last_ahead == last(4)


@pytest.mark.parametrize(
    ("report", "sentences"),
    [
        (
            reported([4000, 120, 4500]),
            ["Operator 'windows': 3 records late (3 dropped), at most 4500 ms; an allowed lateness of 4500 ms keeps"
             " 99 % of them."],
        ),
        (
            LateRecords(
                operator="join",
                remedy=LateRemedy.MORE_DISORDER,
                places={LatePlace.SIDE_OUTPUT: 1},
                delays={7: 1},
                longest_ms=7,
            ),
            ["Operator 'join': 1 record late (1 side output), at most 7 ms; 7 ms more disorder in the watermark"
             " strategy keeps 99 % of them."],
        ),
        (reported([], of_no_window=2), ["Operator 'windows': no window contains 2 records, dropped."]),
        (reported([], ahead=1), ["Operator 'windows': 1 record too far ahead of time to be believed."]),
        (
            reported([1, 2**63 - 1339]),
            ["Operator 'windows': 2 records late (2 dropped), some of them behind the end of event time;"
             " no lateness keeps 99 % of them."],
        ),
        (
            reported([*range(1, 200), 2**63 - 1339]),
            ["Operator 'windows': 200 records late (200 dropped), some of them behind the end of event time;"
             " an allowed lateness of 199 ms keeps 99 % of them."],
        ),
    ],
)  # fmt: skip
def test_the_end_of_a_job_tells_it_in_sentences(report: LateRecords, sentences: list[str]) -> None:
    assert report.sentences() == sentences
