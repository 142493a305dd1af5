"""Restart strategies: whether a failed job restarts, and after which pause (Flink's rules and names).

Owner: the JobMaster's loop. Pure: times are seconds of a monotonic clock, and the random generator is passed
in. A strategy is told of each failure that begins a restart, not of failures that join a running one.
failover.py decides what restarts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Protocol

import msgspec

from yarrow.runtime.common.backoff import Backoff
from yarrow.runtime.common.randomness import new_generator
from yarrow.runtime.config.options import checkpointing, restart_strategy
from yarrow.runtime.config.options.restart_strategy import RestartStrategy
from yarrow.runtime.config.settings import Settings


class RestartBackoffSnapshot(msgspec.Struct, frozen=True, tag=True, tag_field="strategy"):
    """A strategy together with its counts."""

    def restored(self) -> RestartBackoff:
        """A strategy that continues from the snapshot."""
        raise NotImplementedError


class RestartBackoff(Protocol):
    """A restart strategy of one job. It counts failures, and answers for the last one."""

    def snapshot(self) -> AnyRestartBackoffSnapshot:
        """The present counts, by which the strategy decides."""
        ...

    @property
    def description(self) -> str:
        """A sentence for logs, REST and the cause of a job that failed for good."""
        ...

    def failed(self, now: float) -> None:
        """Counts a failure that begins a restart, or would."""
        ...

    def may_restart(self, now: float) -> bool:
        """Whether the job restarts after the last failure."""
        ...

    def delay(self) -> float:
        """Seconds between the last failure and the restart."""
        ...


#: Makes the strategy of one job.
RestartBackoffFactory = Callable[[], RestartBackoff]


class NoRestartBackoff:
    """restart-strategy.type: none. The first failure fails the job."""

    description = "Restart deactivated."

    def snapshot(self) -> NoRestarts:
        return NoRestarts()

    def failed(self, now: float) -> None:
        """Ignores the failure."""

    def may_restart(self, now: float) -> bool:
        return False

    def delay(self) -> float:
        return 0.0


class FixedDelaySettings(msgspec.Struct, frozen=True):
    """Restarts a number of times, each after the same pause: restart-strategy.fixed-delay.*."""

    attempts: int = 1
    delay: float = 1.0


class FixedDelayBackoff:
    """Allows a fixed number of restarts, each after the same pause."""

    def __init__(self, settings: FixedDelaySettings) -> None:
        self._settings = settings
        self._failures = 0

    def snapshot(self) -> FixedDelaySnapshot:
        return FixedDelaySnapshot(self._settings, self._failures)

    @property
    def description(self) -> str:
        settings = self._settings
        return f"fixed delay: {settings.attempts} restarts, each after {settings.delay:g} s"

    def failed(self, now: float) -> None:
        self._failures += 1

    def may_restart(self, now: float) -> bool:
        return self._failures <= self._settings.attempts

    def delay(self) -> float:
        return self._settings.delay


class FailureRateSettings(msgspec.Struct, frozen=True):
    """Restarts as long as failures are rare enough: restart-strategy.failure-rate.*."""

    max_failures: int = 1
    interval: float = 60.0
    delay: float = 1.0


class FailureRateBackoff:
    """Restarts while no interval has more failures than allowed."""

    def __init__(self, settings: FailureRateSettings) -> None:
        self._settings = settings
        #: Times of the last failures, one more than allowed.
        self._failures: deque[float] = deque(maxlen=settings.max_failures + 1)

    def snapshot(self) -> FailureRateSnapshot:
        return FailureRateSnapshot(self._settings, tuple(self._failures))

    @property
    def description(self) -> str:
        settings = self._settings
        return (
            f"failure rate: up to {settings.max_failures} failures in {settings.interval:g} s, restart after"
            f" {settings.delay:g} s"
        )

    def failed(self, now: float) -> None:
        self._failures.append(now)

    def may_restart(self, now: float) -> bool:
        full = len(self._failures) == self._failures.maxlen
        return not full or now - self._failures[0] > self._settings.interval

    def delay(self) -> float:
        return self._settings.delay


class ExponentialDelaySettings(msgspec.Struct, frozen=True):
    """Restarts after pauses that grow with each failure: restart-strategy.exponential-delay.*."""

    initial: float = 1.0
    maximum: float = 60.0
    multiplier: float = 1.5
    reset_threshold: float = 3600.0
    #: Largest random change of a pause, as a fraction of it.
    jitter: float = 0.1
    attempts: int = 2**31 - 1


class ExponentialDelayBackoff:
    """Each pause is longer than the last, until the job has run long enough without a failure."""

    def __init__(self, settings: ExponentialDelaySettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        #: The pauses without jitter.
        self._backoff = Backoff(settings.initial, settings.maximum, settings.multiplier)
        self._delay = 0.0
        self._attempts = 0
        #: When the job ran again after the last failure.
        self._restarted = 0.0

    def snapshot(self) -> ExponentialDelaySnapshot:
        version, generator, gauss = self._random.getstate()
        return ExponentialDelaySnapshot(
            settings=self._settings,
            next_pause=self._backoff.seconds,
            delay=self._delay,
            attempts=self._attempts,
            restarted=self._restarted,
            generator=(version, generator, gauss),
        )

    @property
    def description(self) -> str:
        settings = self._settings
        return (
            f"exponential delay: {settings.initial:g} s, times {settings.multiplier:g} at each restart, up to"
            f" {settings.maximum:g} s, reset after {settings.reset_threshold:g} s without failure, at most"
            f" {settings.attempts} restarts before"
        )

    def failed(self, now: float) -> None:
        settings = self._settings
        if now - self._restarted >= settings.reset_threshold:
            self._backoff.reset()
            self._attempts = 0
        self._attempts += 1
        pause = self._backoff.next_seconds()
        offset = pause * settings.jitter * (2 * self._random.random() - 1)
        self._delay = min(pause + offset, settings.maximum)
        self._restarted = now + self._delay

    def may_restart(self, now: float) -> bool:
        return self._attempts <= self._settings.attempts

    def delay(self) -> float:
        return self._delay


class NoRestarts(RestartBackoffSnapshot, frozen=True):
    """The snapshot of a NoRestartBackoff."""

    def restored(self) -> RestartBackoff:
        return NoRestartBackoff()


class FixedDelaySnapshot(RestartBackoffSnapshot, frozen=True):
    """The snapshot of a FixedDelayBackoff."""

    settings: FixedDelaySettings
    failures: int

    def restored(self) -> RestartBackoff:
        backoff = FixedDelayBackoff(self.settings)
        backoff._failures = self.failures
        return backoff


class FailureRateSnapshot(RestartBackoffSnapshot, frozen=True):
    """The snapshot of a FailureRateBackoff."""

    settings: FailureRateSettings
    #: Times of the last failures.
    failures: tuple[float, ...]

    def restored(self) -> RestartBackoff:
        backoff = FailureRateBackoff(self.settings)
        backoff._failures.extend(self.failures)
        return backoff


class ExponentialDelaySnapshot(RestartBackoffSnapshot, frozen=True):
    """The snapshot of an ExponentialDelayBackoff."""

    settings: ExponentialDelaySettings
    #: Seconds without jitter.
    next_pause: float
    delay: float
    attempts: int
    restarted: float
    #: State of the generator of the jitter.
    generator: tuple[int, tuple[int, ...], float | None]

    def restored(self) -> RestartBackoff:
        random = new_generator(0)
        random.setstate(self.generator)
        backoff = ExponentialDelayBackoff(self.settings, random)
        backoff._backoff.restore(self.next_pause)
        backoff._delay, backoff._attempts, backoff._restarted = self.delay, self.attempts, self.restarted
        return backoff


AnyRestartBackoffSnapshot = NoRestarts | FixedDelaySnapshot | FailureRateSnapshot | ExponentialDelaySnapshot


def restart_backoff_factory(
    settings: Settings, generator: Callable[[], Random] = new_generator
) -> RestartBackoffFactory:
    """The configured strategy. Without one, a job with checkpoints gets exponential delay."""
    kind = settings.get(restart_strategy.TYPE)
    if kind is None:
        checkpoints = settings.get(checkpointing.INTERVAL) is not None
        kind = RestartStrategy.EXPONENTIAL_DELAY if checkpoints else RestartStrategy.NONE
    if kind in (RestartStrategy.NONE, RestartStrategy.OFF, RestartStrategy.DISABLE):
        return NoRestartBackoff
    if kind in (RestartStrategy.FIXED_DELAY, RestartStrategy.FIXEDDELAY):
        fixed = FixedDelaySettings(
            settings.get(restart_strategy.FIXED_DELAY_ATTEMPTS),
            settings.get(restart_strategy.FIXED_DELAY_DELAY).seconds,
        )
        return lambda: FixedDelayBackoff(fixed)
    if kind in (RestartStrategy.FAILURE_RATE, RestartStrategy.FAILURERATE):
        rate = FailureRateSettings(
            settings.get(restart_strategy.FAILURE_RATE_MAX_FAILURES),
            settings.get(restart_strategy.FAILURE_RATE_INTERVAL).seconds,
            settings.get(restart_strategy.FAILURE_RATE_DELAY).seconds,
        )
        return lambda: FailureRateBackoff(rate)
    exponential = ExponentialDelaySettings(
        settings.get(restart_strategy.EXPONENTIAL_INITIAL_BACKOFF).seconds,
        settings.get(restart_strategy.EXPONENTIAL_MAX_BACKOFF).seconds,
        settings.get(restart_strategy.EXPONENTIAL_MULTIPLIER),
        settings.get(restart_strategy.EXPONENTIAL_RESET_THRESHOLD).seconds,
        settings.get(restart_strategy.EXPONENTIAL_JITTER),
        settings.get(restart_strategy.EXPONENTIAL_ATTEMPTS),
    )
    return lambda: ExponentialDelayBackoff(exponential, generator())
