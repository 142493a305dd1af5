"""Restart strategies: how often, and after which delay, a failed job starts again.

Settings only; the job master counts failures and waits. Delays and intervals are in milliseconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

__all__ = ["RestartStrategies", "RestartStrategyConfiguration"]


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
        delay_between_attempts: int

        def __post_init__(self) -> None:
            _require_at_least("restart_attempts", self.restart_attempts, 0)
            _require_at_least("delay_between_attempts", self.delay_between_attempts, 0)

        def get_description(self) -> str:
            return (
                f"Restart with fixed delay ({self.delay_between_attempts} ms). "
                f"#{self.restart_attempts} restart attempts."
            )

    @dataclass(frozen=True)
    class FailureRateRestartStrategyConfiguration(RestartStrategyConfiguration):
        """Restarts for as long as no interval sees more failures than the rate."""

        max_failure_rate: int
        failure_interval: int
        delay_between_attempts_interval: int

        def __post_init__(self) -> None:
            _require_at_least("failure_rate", self.max_failure_rate, 1)
            _require_at_least("failure_interval", self.failure_interval, 1)
            _require_at_least("delay_interval", self.delay_between_attempts_interval, 0)

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
        restart_attempts: int, delay_between_attempts: int
    ) -> FixedDelayRestartStrategyConfiguration:
        """Return: up to `restart_attempts` restarts, each after `delay_between_attempts` ms."""
        return RestartStrategies.FixedDelayRestartStrategyConfiguration(
            restart_attempts, delay_between_attempts
        )

    @staticmethod
    def failure_rate_restart(
        failure_rate: int, failure_interval: int, delay_interval: int
    ) -> FailureRateRestartStrategyConfiguration:
        """Return: restarts until `failure_interval` ms see more than `failure_rate` failures."""
        return RestartStrategies.FailureRateRestartStrategyConfiguration(
            failure_rate, failure_interval, delay_interval
        )


def _require_at_least(name: str, value: int, least: int) -> None:
    if value < least:
        raise ValueError(f"{name} of a restart strategy must be at least {least}, not {value}")
