"""Restart strategies of a program in its configuration."""

from __future__ import annotations

import pytest

from tests.unit.runtime.graph.programs import environment
from yarrow.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from yarrow.runtime.common.errors import InvalidProgramError


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        (RestartStrategies.no_restart(), {"restart-strategy.type": "none"}),
        (RestartStrategies.fall_back_restart(), {}),
        (
            RestartStrategies.fixed_delay_restart(3, 1500),
            {
                "restart-strategy.type": "fixed-delay",
                "restart-strategy.fixed-delay.attempts": "3",
                "restart-strategy.fixed-delay.delay": "1500 ms",
            },
        ),
        (
            RestartStrategies.failure_rate_restart(2, 60_000, 10),
            {
                "restart-strategy.type": "failure-rate",
                "restart-strategy.failure-rate.max-failures-per-interval": "2",
                "restart-strategy.failure-rate.failure-rate-interval": "60000 ms",
                "restart-strategy.failure-rate.delay": "10 ms",
            },
        ),
    ],
)
def test_strategies_become_configuration(
    strategy: RestartStrategyConfiguration, settings: dict[str, str]
) -> None:
    env = environment()
    before = env.get_configuration().to_dict()
    env.set_restart_strategy(strategy)
    after = env.get_configuration().to_dict()
    assert {key: value for key, value in after.items() if before.get(key) != value} == settings


def test_a_strategy_of_the_users_own_is_refused() -> None:
    class Own(RestartStrategyConfiguration):
        def get_description(self) -> str:
            return "own"

    with pytest.raises(InvalidProgramError, match="Own is no restart strategy"):
        environment().set_restart_strategy(Own())
