"""Restart strategies: how often, and after which delay, a failed job starts again.

Settings only; the job master counts failures and waits. Delays and intervals are given in milliseconds or as a
timedelta, and kept in milliseconds; getters return timedeltas, as PyFlink's do.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]

_MILLISECOND = timedelta(milliseconds=1)


class RestartStrategyConfiguration(ABC):
    """The settings of one strategy. Equal settings are equal."""

    @abstractmethod
    def get_description(self) -> str:
        """Return a sentence about the strategy for logs and REST."""


class RestartStrategies:
    """Makes the settings of a strategy."""

    @dataclass(frozen=True)
    class NoRestartStrategyConfiguration(RestartStrategyConfiguration):
        """The first failure fails the job."""

        def get_description(self) -> str:
            return "Restart deactivated."

    @dataclass(frozen=True)
    class FixedDelayRestartStrategyConfiguration(RestartStrategyConfiguration):
        """A fixed number of restarts, each after the same delay."""

        restart_attempts: int
        delay_between_attempts_interval: int | timedelta

        def __post_init__(self) -> None:
            _require_at_least("restart_attempts", self.restart_attempts, 0)
            _set_millis(self, "delay_between_attempts_interval", 0)

        def get_restart_attempts(self) -> int:
            """Return how many restarts there are at most."""
            return self.restart_attempts

        def get_delay_between_attempts_interval(self) -> timedelta:
            """Return the time before each restart."""
            return _length(self.delay_between_attempts_interval)

        def get_description(self) -> str:
            return (
                f"Restart with fixed delay ({self.delay_between_attempts_interval} ms). "
                f"#{self.restart_attempts} restart attempts."
            )

    @dataclass(frozen=True)
    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restarts for as long as no interval sees more failures than the rate."""

        max_failure_rate: int
        failure_interval: int | timedelta
        delay_between_attempts_interval: int | timedelta

        def __post_init__(self) -> None:
            _require_at_least("failure_rate", self.max_failure_rate, 1)
            _set_millis(self, "failure_interval", 1)
            _set_millis(self, "delay_between_attempts_interval", 0)

        def get_max_failure_rate(self) -> int:
            """Return how many failures an interval may see."""
            return self.max_failure_rate

        def get_failure_interval(self) -> timedelta:
            """Return the interval in which failures are counted."""
            return _length(self.failure_interval)

        def get_delay_between_attempts_interval(self) -> timedelta:
            """Return the time before each restart."""
            return _length(self.delay_between_attempts_interval)

        def get_description(self) -> str:
            return (
                f"Failure rate restart with maximum of {self.max_failure_rate} failures within interval "
                f"{self.failure_interval} ms and fixed delay {self.delay_between_attempts_interval} ms."
            )

    @dataclass(frozen=True)
    class FallbackRestartStrategyConfiguration(RestartStrategyConfiguration):
        """The strategy of the cluster."""

        def get_description(self) -> str:
            return "Cluster level default restart strategy"

    @staticmethod
    def no_restart() -> NoRestartStrategyConfiguration:
        """Return: the first failure fails the job."""
        return RestartStrategies.NoRestartStrategyConfiguration()

    @staticmethod
    def fall_back_restart() -> FallbackRestartStrategyConfiguration:
        """Return: as the cluster is configured."""
        return RestartStrategies.FallbackRestartStrategyConfiguration()

    @staticmethod
    def fixed_delay_restart(
        restart_attempts: int, delay_between_attempts: int | timedelta
    ) -> FixedDelayRestartStrategyConfiguration:
        """Return: up to `restart_attempts` restarts, each after `delay_between_attempts` (ms, or a timedelta)."""
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(
            restart_attempts, delay_between_attempts
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int | timedelta, delay_interval: int | timedelta
    ) -> FailureRateRestartStrategyConfiguration:
        """Return: restarts until `failure_interval` sees more than `failure_rate` failures (ms, or timedeltas)."""
        return RestartStrategies.FailureRateRestartStrategyConfiguration(
            failure_rate, failure_interval, delay_interval
        )


def _require_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} of a restart strategy must be at least {least}, not {value}")


def _set_millis(strategy: RestartStrategyConfiguration, name: str, least: int) -> None:
    """Keeps a length of time in milliseconds, so that equal strategies are equal however they were written."""
    value = getattr(strategy, name)
    if isinstance(value, bool) or not isinstance(value, int | timedelta):
        raise TypeError(f"{name} of a restart strategy takes milliseconds or a timedelta, not {value!r}")
    _require_at_least(name, _millis(value), least)
    object.__setattr__(strategy, name, _millis(value))


def _millis(length: int | timedelta) -> int:
    return length // _MILLISECOND if isinstance(length, timedelta) else length


def _length(millis: int | timedelta) -> timedelta:
    return timedelta(milliseconds=_millis(millis))
