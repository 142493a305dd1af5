"""Options of restart strategies, which act after a failure.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

import enum
from typing import Final

from yarrow.common.values.value_types import COUNT, DURATION, FRACTION, enum_of, floating, integer
from yarrow.runtime.config.values.option import option, optional


class RestartStrategy(enum.Enum):
    """Flink's restart strategies."""

    NONE = "none"
    OFF = "off"
    DISABLE = "disable"
    FIXED_DELAY = "fixed-delay"
    FIXEDDELAY = "fixeddelay"
    FAILURE_RATE = "failure-rate"
    FAILURERATE = "failurerate"
    EXPONENTIAL_DELAY = "exponential-delay"
    EXPONENTIALDELAY = "exponentialdelay"


TYPE: Final = optional(
    "restart-strategy.type",
    enum_of(RestartStrategy),
    "How a failed job restarts.",
    unset="`exponential-delay` with checkpoints, `none` without",
    deprecated_keys=("restart-strategy",),
)
FIXED_DELAY_ATTEMPTS: Final = option(
    "restart-strategy.fixed-delay.attempts",
    COUNT,
    "1",
    "Restarts before the job fails for good.",
)
FIXED_DELAY_DELAY: Final = option(
    "restart-strategy.fixed-delay.delay",
    DURATION,
    "1 s",
    "Pause before a restart.",
)
FAILURE_RATE_MAX_FAILURES: Final = option(
    "restart-strategy.failure-rate.max-failures-per-interval",
    COUNT,
    "1",
    "Failures within the interval before the job fails for good.",
)
FAILURE_RATE_INTERVAL: Final = option(
    "restart-strategy.failure-rate.failure-rate-interval",
    DURATION,
    "1 min",
    "The interval in which failures are counted.",
)
FAILURE_RATE_DELAY: Final = option(
    "restart-strategy.failure-rate.delay",
    DURATION,
    "1 s",
    "Pause before a restart.",
)
EXPONENTIAL_INITIAL_BACKOFF: Final = option(
    "restart-strategy.exponential-delay.initial-backoff",
    DURATION,
    "1 s",
    "Pause before the first restart.",
)
EXPONENTIAL_MAX_BACKOFF: Final = option(
    "restart-strategy.exponential-delay.max-backoff",
    DURATION,
    "1 min",
    "The longest pause before a restart.",
)
EXPONENTIAL_MULTIPLIER: Final = option(
    "restart-strategy.exponential-delay.backoff-multiplier",
    floating(1.0, None, "1.5"),
    "1.5",
    "By how much each pause is longer than the one before.",
)
EXPONENTIAL_RESET_THRESHOLD: Final = option(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    DURATION,
    "1 h",
    "Time without a failure after which the pause begins anew.",
)
EXPONENTIAL_JITTER: Final = option(
    "restart-strategy.exponential-delay.jitter-factor",
    FRACTION,
    "0.1",
    "Random part of each pause.",
)
EXPONENTIAL_ATTEMPTS: Final = option(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    integer(minimum=1, example="10"),
    "2147483647",
    "Restarts, with no reset between them, before the job fails for good.",
)
