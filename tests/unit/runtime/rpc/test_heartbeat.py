"""HeartbeatMonitor: whom to ask, whom to give up."""

from __future__ import annotations

import pytest

from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.rpc.heartbeat import HeartbeatMonitor, HeartbeatSettings


def test_the_silent_are_given_up_once_and_the_heard_are_not() -> None:
    clock = ManualClock()
    monitor: HeartbeatMonitor[str] = HeartbeatMonitor(HeartbeatSettings(interval=10, timeout=50), clock)
    monitor.monitor("loud")
    monitor.monitor("silent")
    clock.advance(49)
    monitor.heard("loud")
    assert monitor.tick().silent == ()
    clock.advance(1)
    round_ = monitor.tick()
    assert (round_.ask, round_.silent) == (("loud",), ("silent",))
    assert monitor.seconds_since("loud") == 1
    clock.advance(10)
    assert monitor.tick().silent == ()
    assert "silent" not in monitor


def test_a_sign_of_an_unknown_target_does_not_make_it_known() -> None:
    monitor: HeartbeatMonitor[str] = HeartbeatMonitor(HeartbeatSettings(), ManualClock())
    monitor.heard("nobody")
    assert "nobody" not in monitor
    monitor.unmonitor("nobody")


@pytest.mark.parametrize(("interval", "timeout"), [(0, 50), (50, 50), (60, 50)])
def test_an_interval_that_cannot_keep_anybody_alive_is_refused(interval: float, timeout: float) -> None:
    with pytest.raises(ValueError, match=r"heartbeat.interval .* below heartbeat.timeout"):
        HeartbeatSettings(interval=interval, timeout=timeout)
