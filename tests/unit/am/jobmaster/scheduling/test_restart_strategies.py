"""Restart strategies: how often, and after which pause."""

from __future__ import annotations

from random import Random

import pytest

from yarrow.am.jobmaster.scheduling.restart_strategies import (
    ExponentialDelayBackoff,
    ExponentialDelaySettings,
    FailureRateBackoff,
    FailureRateSettings,
    FixedDelayBackoff,
    FixedDelaySettings,
    NoRestartBackoff,
    RestartBackoff,
    restart_backoff_factory,
)
from yarrow.runtime.config.settings import Settings


def after(backoff: RestartBackoff, *times: float) -> list[float | None]:
    """The pause after a failure at each of these times, None where the job fails for good."""
    pauses: list[float | None] = []
    for now in times:
        backoff.failed(now)
        pauses.append(backoff.delay() if backoff.may_restart(now) else None)
    return pauses


def test_none_never_restarts() -> None:
    assert after(NoRestartBackoff(), 0) == [None]


def test_fixed_delay_restarts_so_often_in_all() -> None:
    assert after(FixedDelayBackoff(FixedDelaySettings(2, 3.0)), 0, 10_000, 20_000) == [3.0, 3.0, None]


def test_failure_rate_forgets_what_lies_before_its_interval() -> None:
    backoff = FailureRateBackoff(FailureRateSettings(2, interval=60, delay=1))
    assert after(backoff, 0, 30, 61, 91, 100) == [1, 1, 1, 1, None]


class Highest(Random):
    """Draws the most jitter there is."""

    def random(self) -> float:
        return 1.0


def test_exponential_delay_grows_to_its_maximum_and_begins_anew() -> None:
    settings = ExponentialDelaySettings(initial=1, maximum=4, multiplier=2, reset_threshold=100, jitter=0)
    backoff = ExponentialDelayBackoff(settings, Random(1))
    assert after(backoff, 0, 10, 20, 30, 133, 237.5) == [1, 2, 4, 4, 4, 1]


def test_exponential_delay_jitters_within_its_maximum() -> None:
    settings = ExponentialDelaySettings(initial=1, maximum=2, multiplier=2, jitter=0.5)
    assert after(ExponentialDelayBackoff(settings, Highest()), 0, 1) == [1.5, 2]


def test_exponential_delay_gives_up_after_its_attempts_unless_it_began_anew() -> None:
    settings = ExponentialDelaySettings(initial=1, reset_threshold=100, jitter=0, attempts=2)
    assert after(ExponentialDelayBackoff(settings, Random(1)), 0, 10, 200, 210, 220) == [1, 1.5, 1, 1.5, None]


@pytest.mark.parametrize(
    ("configuration", "kind"),
    [
        ({}, NoRestartBackoff),
        ({"execution.checkpointing.interval": "1 s"}, ExponentialDelayBackoff),
        ({"execution.checkpointing.interval": "1 s", "restart-strategy.type": "off"}, NoRestartBackoff),
        ({"restart-strategy": "disable"}, NoRestartBackoff),
        ({"restart-strategy.type": "fixed-delay"}, FixedDelayBackoff),
        ({"restart-strategy.type": "failurerate"}, FailureRateBackoff),
        ({"restart-strategy.type": "exponential-delay"}, ExponentialDelayBackoff),
    ],
)
def test_the_configuration_names_the_strategy(
    configuration: dict[str, str], kind: type[RestartBackoff]
) -> None:
    assert isinstance(restart_backoff_factory(Settings(configuration, "a test"))(), kind)


def test_every_setting_is_read() -> None:
    prefix = "restart-strategy.exponential-delay."
    values = {
        "initial-backoff": "2 s",
        "max-backoff": "5 s",
        "backoff-multiplier": "2",
        "reset-backoff-threshold": "10 s",
        "jitter-factor": "0",
        "attempts-before-reset-backoff": "2",
    }
    configuration = {"restart-strategy.type": "exponential-delay"} | {
        prefix + name: value for name, value in values.items()
    }
    backoff = restart_backoff_factory(Settings(configuration, "a test"))()
    assert after(backoff, 0, 3, 7, 30) == [2, 4, None, 2]
    fixed = {"restart-strategy.type": "fixed-delay"} | {
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "250 ms",
    }
    assert after(restart_backoff_factory(Settings(fixed, "a test"))(), 0, 0, 0, 0) == [0.25, 0.25, 0.25, None]
    rate = {"restart-strategy.type": "failure-rate"} | {
        "restart-strategy.failure-rate.max-failures-per-interval": "1",
        "restart-strategy.failure-rate.failure-rate-interval": "5 s",
        "restart-strategy.failure-rate.delay": "2 s",
    }
    assert after(restart_backoff_factory(Settings(rate, "a test"))(), 0, 6, 7) == [2, 2, None]
