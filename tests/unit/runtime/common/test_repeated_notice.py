"""A job that waits says so when it changes, again every minute, and when it is over."""

from __future__ import annotations

from yarrow.runtime.common.repeated_notice import RepeatedNotice


def told(notice: RepeatedNotice, *looks: tuple[float, str]) -> list[tuple[float, str]]:
    """What is told of (time, text) looked at."""
    return [(now, said) for now, text in looks if (said := notice.look(text, now)) is not None]


def test_told_when_it_changes_and_when_it_is_over() -> None:
    assert told(
        RepeatedNotice(),
        (0, ""),
        (1, "needs 4"),
        (2, "needs 4"),
        (3, "needs 2"),
        (4, ""),
        (5, ""),
        (6, "needs 2"),
    ) == [(1, "needs 4"), (3, "needs 2"), (4, ""), (6, "needs 2")]


def test_what_does_not_change_is_told_every_minute() -> None:
    looks = [(float(now), "needs 4") for now in range(0, 130)]
    assert told(RepeatedNotice(again=60.0), *looks) == [(0, "needs 4"), (60, "needs 4"), (120, "needs 4")]


def test_what_is_over_soon_is_not_told() -> None:
    notice = RepeatedNotice(patience=5.0)
    assert told(notice, (0, "needs 4"), (4, "needs 3"), (4.5, ""), (6, "needs 4"), (10.9, "needs 4")) == []
    assert told(notice, (11, "needs 3"), (12, "")) == [(11, "needs 3"), (12, "")]
