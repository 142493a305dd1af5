"""PrefixWatch: decides whether another living job has the prefix of a sink's transactions.

Owner: the task's thread, while a sink starts. Pure: it takes what brokers tell, with times, and asks nobody.

Each job with the prefix has a name of its own on the brokers, under which it never writes: `<prefix>-owner-<job id>`. A
living job gives its name the next epoch at intervals: a beat. The time-out that it asks for with a beat means nothing
to brokers. It tells what the job says of itself (docs/design/0051-owners-of-transaction-prefixes.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionFacts

#: Seconds between two beats of a living job.
BEAT_SECONDS: Final = 2.0
#: Seconds after which a job without beats counts as dead.
WATCH_SECONDS: Final = 8.0
#: Beats that show a living job. One beat may be the last one of a job that is being cancelled.
_BEATS_OF_LIVING: Final = 2
_JOB_ID_DIGITS: Final = frozenset("0123456789abcdef")
_JOB_ID_LENGTH: Final = 32


class Mark(IntEnum):
    """What a job says of itself: the time-out of its name, in ms."""

    #: It looks whether other jobs have the prefix.
    CLAIMS = 1001
    #: It has the prefix.
    OWNS = 1002
    #: It has had the prefix, and may begin again: an attempt of it ended.
    RELEASED = 1003
    #: It never had the prefix.
    WITHDRAWN = 1004

    @property
    def is_living(self) -> bool:
        """Whether the job beats, unless it was killed."""
        return self in {Mark.CLAIMS, Mark.OWNS}

    @property
    def had_prefix(self) -> bool:
        """Whether an earlier attempt of the job has had the prefix."""
        return self in {Mark.OWNS, Mark.RELEASED}

    @property
    def of_dead(self) -> Mark:
        """What is true of a job with this mark that was killed."""
        return Mark.RELEASED if self.had_prefix else Mark.WITHDRAWN


@dataclass(frozen=True, slots=True)
class Sign:
    """The name of a job, as the coordinator tells it: each beat makes another one."""

    mark: Mark
    producer_id: int
    producer_epoch: int

    @classmethod
    def of(cls, facts: TransactionFacts | None) -> Self | None:
        """Read what the coordinator tells; None = the name is not known, or its time-out is no mark."""
        if facts is None or facts.timeout_ms not in set(Mark):
            return None
        return cls(Mark(facts.timeout_ms), facts.producer_id, facts.producer_epoch)


def owner_name(prefix: str, job_id: str) -> str:
    """The name of a job with this prefix."""
    return f"{owners_prefix(prefix)}{job_id}"


def owners_prefix(prefix: str) -> str:
    """How the names of all jobs with this prefix begin."""
    return f"{prefix}-owner-"


def job_of(prefix: str, name: str) -> str | None:
    """The id of the job that has the name; None = it is no such name."""
    job_id = name.removeprefix(owners_prefix(prefix))
    return job_id if len(job_id) == _JOB_ID_LENGTH and _JOB_ID_DIGITS.issuperset(job_id) else None


class PrefixWatch:
    """Watches the names of other jobs, until one is seen to live or none can be alive any more."""

    def __init__(self, job_id: str, now: float) -> None:
        self._job_id = job_id
        self._ends = now + WATCH_SECONDS
        #: The last sign of each other job that may live, and how many beats have come.
        self._signs: dict[str, Sign] = {}
        self._beats: dict[str, int] = {}

    @property
    def watched(self) -> list[str]:
        """Ids of the jobs that may live."""
        return sorted(self._signs)

    def saw(self, job_id: str, sign: Sign | None) -> None:
        """Take what the coordinator tells of another job now."""
        if sign is None or not sign.mark.is_living:
            self._signs.pop(job_id, None)
            return
        before = self._signs.get(job_id)
        if before is not None and before != sign:
            self._beats[job_id] = self._beats.get(job_id, 0) + 1
        self._signs[job_id] = sign

    def owner(self) -> str | None:
        """The job that lives and has the prefix; None = none was seen.

        Of two jobs that claim it at the same time, the one with the smaller id gets it.
        """
        for job_id, sign in sorted(self._signs.items()):
            lives = self._beats.get(job_id, 0) >= _BEATS_OF_LIVING
            if lives and (sign.mark is Mark.OWNS or job_id < self._job_id):
                return job_id
        return None

    def is_over(self, now: float) -> bool:
        """Whether no watched job can be alive any more, as far as beats tell."""
        return not self._signs or now >= self._ends

    def dead(self) -> dict[str, Mark]:
        """Jobs that never made a beat, with the marks that later jobs shall find: they need not watch them again."""
        return {job: sign.mark.of_dead for job, sign in self._signs.items() if not self._beats.get(job)}
