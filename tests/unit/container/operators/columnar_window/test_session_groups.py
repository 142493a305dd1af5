"""Sessions of the rows of a batch, and of those with sessions of before, against a list that is merged one by one."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.operators.columnar_window.session_groups import SessionBounds, merged, sessions_of_rows

Session = tuple[int, int, int]


def added(sessions: list[Session], new: Session) -> list[Session]:
    """The sessions (key, start, end) with one more, which merges with those of its key that it overlaps or touches."""
    touched = [s for s in sessions if s[0] == new[0] and s[1] <= new[2] and new[1] <= s[2]]
    bounds = [*touched, new]
    one = new[0], min(s[1] for s in bounds), max(s[2] for s in bounds)
    return [*(s for s in sessions if s not in touched), one]


def listed(sessions: SessionBounds) -> list[Session]:
    return list(zip(*(column.tolist() for column in sessions), strict=True))


def holds(session: Session, part: Session) -> bool:
    return session[0] == part[0] and session[1] <= part[1] and part[2] <= session[2]


rows_of = st.lists(st.tuples(st.integers(0, 3), st.integers(-20, 20)), min_size=1, max_size=15)


@given(rows=rows_of, before=rows_of | st.just([]), gap=st.integers(1, 5))
def test_sessions_are_those_of_rows_that_come_one_by_one(
    rows: list[tuple[int, int]], before: list[tuple[int, int]], gap: int
) -> None:
    live: list[Session] = []
    for key, time in before:
        live = added(live, (key, time, time + gap + 1))
    keys, times = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    of_batch = sessions_of_rows(keys, times, gap)
    expected: list[Session] = []
    for key, time in rows:
        expected = added(expected, (key, time, time + gap))
    found = listed(of_batch.sessions)
    assert sorted(found) == sorted(expected)
    for row, place in zip(rows, of_batch.of_rows.tolist(), strict=True):
        assert holds(found[place], (row[0], row[1], row[1] + gap))

    columns = zip(*live, strict=True) if live else ((), (), ())
    all_of_them = merged(
        of_batch.sessions, SessionBounds(*(np.array(list(column), np.int64) for column in columns))
    )
    for session in live:
        expected = added(expected, session)
    together = listed(all_of_them.sessions)
    assert sorted(together) == sorted(expected)
    for part, place in zip(found, all_of_them.of_rows.tolist(), strict=True):
        assert holds(together[place], part)
    for part, place in zip(live, all_of_them.of_live.tolist(), strict=True):
        assert holds(together[place], part)
