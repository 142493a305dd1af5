"""The nemesis: a seeded schedule of faults, carried out on a cluster under a running job, and what must hold
afterwards: the job runs within its grace, its output is that without faults, once cancelled it never runs again.

Owner: the caller's thread; blocks. The schedule is a function of seed, length and kinds alone: printed, it replays.
What a fault does is the target's business. A fault that meets nobody is tried until it hits, and the next one waits for
a checkpoint that was completed since the last hit: faults that last overlap as far as checkpoints are completed
meanwhile. An odd seed and the even one behind it have every kind between them.
"""

from __future__ import annotations

import random
import time
from collections import Counter, deque
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


def needed_kinds(seed: int, kinds: Sequence[Kind]) -> list[Kind]:
    """The half of all kinds that a seed's schedule must have; an odd seed and the next one share them out."""
    pair, second = divmod(seed + 1, 2)
    dealt = random.Random(pair).sample(list(kinds), len(kinds))
    return dealt[second::2]


def make_schedule(seed: int, seconds: float, kinds: Sequence[Kind]) -> Schedule:
    """The schedule of a seed: first what it must have, also where that takes longer than `seconds`, then by chance."""
    generator = random.Random(seed)
    left = {kind.name: kind.limit for kind in kinds}
    faults: list[PlannedFault] = []
    busy: dict[str, float] = {}
    at = generator.uniform(0.0, _GAPS[0])
    needed = needed_kinds(seed, kinds)
    while at < seconds or needed:
        free = [kind for kind in kinds if left[kind.name] != 0 and busy.get(kind.name, -1.0) < at]
        if needed or free:
            must = bool(needed)
            kind = needed.pop(0) if must else generator.choices(free, [one.weight for one in free])[0]
            length = generator.uniform(*_LENGTHS) if kind.lasts else 0.0
            length = length if must else min(length, seconds - at)
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

    def begin(self, kind: str) -> Callable[[], None] | None:
        """Does it; returns what heals it, or None where there is nobody whom it could hit."""
        ...

    def last_checkpoint(self) -> int:
        """Id of the last completed checkpoint of the job, 0 while nobody can say."""
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
        #: How often each kind has hit somebody.
        self.hits: Counter[str] = Counter()

    def run(self, schedule: Schedule, then_cancel: bool = False) -> None:
        """The faults, then the proof; AssertionError says what did not hold. Everything is healed afterwards."""
        self._say(str(schedule))
        try:
            self._carry_out(schedule)
        finally:
            self._target.heal_all()
        self._say(f"hit: {dict(self.hits)}")
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
        waiting = deque(schedule.faults)
        #: Since when the next fault could have come, and the last checkpoint before the last hit.
        due, checkpoint = 0.0, 0
        while waiting or healing:
            now = self._clock.monotonic() - began
            for entry in [entry for entry in healing if entry[0] <= now]:
                healing.remove(entry)
                self._say(f"{now:6.1f} s  over: {entry[1].kind}")
                entry[2]()
            if waiting and waiting[0].at <= now:
                fault = waiting[0]
                due = max(due, fault.at)
                if now > schedule.seconds and self.hits[fault.kind]:
                    waiting.popleft()
                elif (last := self._target.last_checkpoint()) > checkpoint and (
                    heal := self._target.begin(fault.kind)
                ) is not None:
                    waiting.popleft()
                    self._say(f"{now:6.1f} s  {fault.kind}")
                    self.hits[fault.kind] += 1
                    # Those from the end of what may have taken long.
                    due = self._clock.monotonic() - began
                    healing.append((due + fault.length, fault, heal))
                    checkpoint = max(last, self._target.last_checkpoint())
                else:
                    # Nothing can be completed while what lasts is in the way.
                    if healing:
                        due = now
                    assert now < due + self._grace, (
                        f"the plan does not count: {fault.kind!r} met nobody, or no checkpoint was completed since"
                        f" the last hit, within {self._grace:g} s"
                    )
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
