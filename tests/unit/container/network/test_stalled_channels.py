"""A channel that holds data without credit is reported once, by name, after its bound."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from yarrow.container.network.output_channel import Credit, LocalOutputChannel
from yarrow.container.network.stalled_channels import (
    StalledChannels,
    Wait,
    WatchedChannel,
    next_wait,
)
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.data.elements import RowBatch

USED_UP = Credit(4, 4, 300, 1000)


class Watched:
    """One channel, its watch, and the time."""

    def __init__(self, bound: float = 60.0) -> None:
        self.clock = ManualClock()
        self.channel = LocalOutputChannel(lambda: None)
        self.is_blocked = False
        watched = WatchedChannel(self.channel, 2, "'Count' (2/3)")
        self.watch = StalledChannels(
            "'Map' (1/2)", [watched], lambda: self.is_blocked, bound, self.clock.monotonic
        )

    def after(self, seconds: float) -> int:
        """Time passes, looked at each second."""
        for _ in range(round(seconds)):
            self.clock.advance(1)
            stalled = self.watch.look()
        return stalled


def test_a_channel_without_credit_is_told_of_once_with_its_names_and_counters(
    caplog: pytest.LogCaptureFixture,
) -> None:
    job = Watched()
    job.channel.send_batch(RowBatch([1]))
    with caplog.at_level(logging.WARNING):
        assert job.after(60) == 0 and not caplog.messages
        assert job.after(100) == 1
    (line,) = caplog.messages
    assert "task 'Map' (1/2): edge 2 to 'Count' (2/3)" in line
    assert "for 60 s. It sent 0 of 0 granted batches and 0 of 0 granted bytes, 1 elements wait" in line


def test_a_grant_ends_the_stall_and_the_next_one_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    job = Watched()
    job.channel.send_batch(RowBatch([1]))
    with caplog.at_level(logging.WARNING):
        assert job.after(70) == 1
        job.channel.sent_batches = 1  # As a batch of one byte that was granted would leave it.
        job.channel.sent_bytes = 1
        job.channel.grant(1, 1)
        assert job.after(60) == 0
        assert job.after(10) == 1
    assert len(caplog.messages) == 2


def test_a_task_that_may_not_work_holds_data_though_none_was_put_out() -> None:
    job = Watched()
    assert job.after(100) == 0
    job.is_blocked = True
    assert job.after(100) == 1


def test_a_channel_with_credit_or_with_a_dead_consumer_is_not_stalled() -> None:
    job = Watched()
    job.is_blocked = True
    job.channel.grant(4, 1000)
    assert job.after(100) == 0
    dead = Watched()
    dead.channel.send_batch(RowBatch([1]))
    dead.channel.fail("its worker is gone")
    assert dead.after(100) == 0


def test_a_bound_of_zero_reports_nothing() -> None:
    job = Watched(bound=0)
    job.channel.send_batch(RowBatch([1]))
    assert job.after(1000) == 0


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 3), st.integers(0, 50)), max_size=30))
def test_a_wait_is_as_old_as_the_last_change(steps: list[tuple[bool, int, int]]) -> None:
    now, wait, since, former = 0.0, None, 0.0, None
    for holds_data, grants, seconds in steps:
        now += seconds
        credit = USED_UP._replace(sent_batches=grants, granted_batches=grants)
        if former != (holds_data, credit):
            since, former = now, (holds_data, credit)
        wait = next_wait(wait, credit, holds_data, now)
        assert wait == (Wait(credit, since) if holds_data else None)
        assert wait is None or wait.is_stall(now, 60) == (now - since >= 60)
