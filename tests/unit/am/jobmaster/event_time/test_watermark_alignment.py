"""AlignmentGroup: the least event time of the readers that count, and the bound of each."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.am.jobmaster.event_time.watermark_alignment import AlignedReader, AlignmentGroup
from yarrow.common.watermark_strategy import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.common.ids import ExecutionAttemptID

FIRST, SECOND, THIRD = (ExecutionAttemptID(name) for name in ("first", "second", "third"))


def group(**readers: AlignedReader) -> AlignmentGroup:
    made = AlignmentGroup()
    for name, reader in readers.items():
        made.take(ExecutionAttemptID(name), reader)
    return made


def test_each_reader_may_be_ahead_of_the_slowest_by_its_own_drift() -> None:
    made = group(first=AlignedReader(1000, 10, 200), second=AlignedReader(700, 50, 100))
    assert made.bounds() == {FIRST: 710, SECOND: 750}
    assert made.interval_ms == 100


def test_readers_that_do_not_count_hold_nobody_back() -> None:
    made = group(first=AlignedReader(1000, 10, 200), second=AlignedReader(None, 10, 200))
    assert made.bounds() == {FIRST: 1010, SECOND: 1010}
    made.take(FIRST, AlignedReader(None, 10, 200))
    assert made.least is None
    assert made.bounds() == {FIRST: MAX_TIMESTAMP, SECOND: MAX_TIMESTAMP}


def test_a_reader_without_a_watermark_holds_all_others_back() -> None:
    made = group(first=AlignedReader(1000, 10, 200), second=AlignedReader(MIN_TIMESTAMP, 10, 200))
    assert made.bounds()[FIRST] == MIN_TIMESTAMP + 10


def test_a_bound_is_a_timestamp() -> None:
    assert group(first=AlignedReader(MAX_TIMESTAMP, 10, 200)).bounds() == {FIRST: MAX_TIMESTAMP}


def test_an_ended_reader_is_forgotten() -> None:
    made = group(first=AlignedReader(1000, 10, 200), second=AlignedReader(700, 10, 300))
    made.forget_ended(lambda attempt: attempt == FIRST)
    assert made.bounds() == {FIRST: 1010}
    made.forget_ended(lambda attempt: False)
    assert made.interval_ms is None
    assert made.bounds() == {}


@settings(max_examples=60)
@given(
    st.dictionaries(
        st.sampled_from(["first", "second", "third"]),
        st.tuples(st.none() | st.integers(-50, 50), st.integers(0, 20)),
        min_size=1,
    )
)
def test_the_slowest_reader_never_waits(readers: dict[str, tuple[int | None, int]]) -> None:
    made = group(**{name: AlignedReader(time, drift, 100) for name, (time, drift) in readers.items()})
    times = {name: time for name, (time, _) in readers.items() if time is not None}
    for name, time in times.items():
        bound = made.bounds()[ExecutionAttemptID(name)]
        assert bound == min(times.values()) + readers[name][1]
        assert (time <= bound) is (time - min(times.values()) <= readers[name][1])
