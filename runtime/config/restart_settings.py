"""Restart strategies of a program as the configuration that the JobMaster reads.

Owner: any thread (pure).
"""

from __future__ import annotations

import yarrow.runtime.config.options.restart_strategy as options
from yarrow.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from yarrow.runtime.common.errors import InvalidProgramError


def restart_strategy_settings(strategy: RestartStrategyConfiguration) -> dict[str, str]:
    """Return the options that a strategy stands for; none for the cluster's own.

    Raises InvalidProgramError for a strategy that is not one of RestartStrategies'.
    """
    match strategy:
        case RestartStrategies.FallbackRestartStrategyConfiguration():
            return {}
        case RestartStrategies.NoRestartStrategyConfiguration():
            return {options.TYPE.key: options.RestartStrategy.NONE.value}
        case RestartStrategies.FixedDelayRestartStrategyConfiguration():
            return {
                options.TYPE.key: options.RestartStrategy.FIXED_DELAY.value,
                options.FIXED_DELAY_ATTEMPTS.key: str(strategy.restart_attempts),
                options.FIXED_DELAY_DELAY.key: f"{strategy.delay_between_attempts_interval} ms",
            }
        case RestartStrategies.FailureRateRestartStrategyConfiguration():
            return {
                options.TYPE.key: options.RestartStrategy.FAILURE_RATE.value,
                options.FAILURE_RATE_MAX_FAILURES.key: str(strategy.max_failure_rate),
                options.FAILURE_RATE_INTERVAL.key: f"{strategy.failure_interval} ms",
                options.FAILURE_RATE_DELAY.key: f"{strategy.delay_between_attempts_interval} ms",
            }
    raise InvalidProgramError(
        f"{type(strategy).__name__} is no restart strategy: make one with RestartStrategies, or set"
        " restart-strategy.type and its options in the configuration"
    )
