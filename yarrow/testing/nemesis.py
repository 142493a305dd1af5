"""The nemesis: a seeded schedule of faults that overlap, carried out on a cluster under a running job, and what must
hold afterwards: the job runs within its grace, its output is that without faults, once cancelled it never runs again.

Owner: the caller's thread; blocks. The schedule is a function of seed, length and kinds alone: printed, it replays.
What a fault does is the target's business.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from yarrow.runtime.common.clock import Clock, SystemClock

#: Seconds between the beginnings of two faults, and for which one that lasts goes on.
_GAPS, _LENGTHS = (2.0, 9.0), (1.0, 12.0)
#: Polls in a row in which the job must be found running, and seconds between them.
POLLS, _BETWEEN_POLLS = 5, 0.5
_LOOK = 0.1


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault that a target knows."""

    name: str
    #: Whether it lasts until it is healed, or is over as soon as it has happened.
    lasts: bool = False
    #: How often one schedule may have it; None = as often as it comes.
    limit: int | None = None
    #: How much more often than others it comes.
    weight: int = 1


@dataclass(frozen=True, slots=True)
class PlannedFault:
    """One fault; seconds since the schedule's begin."""

    kind: str
    at: float
    #: 0 for one that does not last.
    length: float = 0.0

    def __str__(self) -> str:
        lasting = f" for {self.length:.1f} s" if self.length else ""
        return f"{self.at:6.1f} s  {self.kind}{lasting}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The faults of a seed, by their moments."""

    seed: int
    seconds: float
    faults: tuple[PlannedFault, ...]

    def __str__(self) -> str:
        lines = "\n".join(str(fault) for fault in self.faults)
        return f"nemesis, seed {self.seed}, {self.seconds:g} s:\n{lines}"


def make_schedule(seed: int, seconds: float, kinds: Sequence[Kind]) -> Schedule:
    """The schedule of a seed; the last fault is over when `seconds` are."""
    generator = random.Random(seed)
    left = {kind.name: kind.limit for kind in kinds}
    faults: list[PlannedFault] = []
    busy: dict[str, float] = {}
    at = generator.uniform(0.0, _GAPS[0])
    while at < seconds:
        free = [kind for kind in kinds if left[kind.name] != 0 and busy.get(kind.name, -1.0) < at]
        if free:
            kind = generator.choices(free, [one.weight for one in free])[0]
            length = min(generator.uniform(*_LENGTHS), seconds - at) if kind.lasts else 0.0
            faults.append(PlannedFault(kind.name, round(at, 1), round(length, 1)))
            busy[kind.name] = at + length
            limit = left[kind.name]
            left[kind.name] = limit if limit is None else limit - 1
        at += generator.uniform(*_GAPS)
    return Schedule(seed, seconds, tuple(faults))


class Target(Protocol):
    """A cluster with a job under the nemesis."""

    def kinds(self) -> Sequence[Kind]:
        """What can be done to it."""
        ...

    def begin(self, kind: str) -> Callable[[], None]:
        """Does it; returns what heals it. Nothing happens where there is nobody whom it could hit."""
        ...

    def heal_all(self) -> None:
        """Everything that still lasts is over, and all daemons serve."""
        ...

    def runs(self) -> bool:
        """Whether all tasks of the job are seen running; False while nobody can say."""
        ...

    def finish(self) -> None:
        """Lets the job go to its end and holds its output against that without faults; AssertionError."""
        ...

    def cancel(self) -> None:
        """Cancels the job; returns when it is CANCELED."""
        ...

    def disturb_after_cancel(self) -> None:
        """Kills the leader, and returns when another leads."""
        ...


class Nemesis:
    """Carries out schedules on one target."""

    def __init__(
        self,
        target: Target,
        grace: float,
        say: Callable[[str], None] = print,
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._target = target
        self._grace = grace
        self._say = say
        self._clock = clock or SystemClock()
        self._pause = pause

    def run(self, schedule: Schedule, then_cancel: bool = False) -> None:
        """The faults, then the proof; AssertionError says what did not hold. Everything is healed afterwards."""
        self._say(str(schedule))
        try:
            self._carry_out(schedule)
        finally:
            self._target.heal_all()
        self._until_running()
        if then_cancel:
            self._target.cancel()
            self._target.disturb_after_cancel()
            for _ in range(POLLS):
                assert not self._target.runs(), "the job runs though it was cancelled"
                self._pause(_BETWEEN_POLLS)
        else:
            self._target.finish()

    def _carry_out(self, schedule: Schedule) -> None:
        began = self._clock.monotonic()
        healing: list[tuple[float, PlannedFault, Callable[[], None]]] = []
        waiting = list(schedule.faults)
        while waiting or healing:
            now = self._clock.monotonic() - began
            for entry in [entry for entry in healing if entry[0] <= now]:
                healing.remove(entry)
                self._say(f"{now:6.1f} s  over: {entry[1].kind}")
                entry[2]()
            while waiting and waiting[0].at <= now:
                fault = waiting.pop(0)
                self._say(f"{now:6.1f} s  {fault.kind}")
                heal = self._target.begin(fault.kind)
                # From the end of what may have taken long.
                healing.append((self._clock.monotonic() - began + fault.length, fault, heal))
            self._pause(_LOOK)

    def _until_running(self) -> None:
        deadline = self._clock.monotonic() + self._grace
        in_a_row = 0
        while in_a_row < POLLS:
            in_a_row = in_a_row + 1 if self._target.runs() else 0
            assert self._clock.monotonic() < deadline, (
                f"the job does not run {self._grace:g} s after the faults"
            )
            self._pause(_BETWEEN_POLLS)


def counts(schedule: Schedule) -> Mapping[str, int]:
    """How often each kind is in a schedule."""
    found: dict[str, int] = {}
    for fault in schedule.faults:
        found[fault.kind] = found.get(fault.kind, 0) + 1
    return found
