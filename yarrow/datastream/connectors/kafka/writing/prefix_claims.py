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
        """The mark that others give the name of a job with this mark, if it was killed."""
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


@dataclass(slots=True)
class _Watched:
    """Another job that lived at the first look, as far as brokers knew."""

    #: What the last look has told.
    sign: Sign
    #: When the first look was answered, in seconds.
    since: float
    #: When the last look was asked for, in seconds.
    looked: float
    beats: int = 0

    @property
    def may_live(self) -> bool:
        return self.sign.mark.is_living


class PrefixWatch:
    """Watches the names of other jobs, until one is seen to live or none can be alive any more.

    Each job has a clock of its own, which begins behind the first look at it. So slow looks take no time from a watch.
    """

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._jobs: dict[str, _Watched] = {}

    @property
    def watched(self) -> list[str]:
        """Ids of the jobs that may live or come back."""
        return sorted(self._jobs)

    def saw(self, job_id: str, sign: Sign | None, asked: float, answered: float) -> None:
        """Take what the coordinator tells of another job, with the seconds of question and answer.

        A job that says RELEASED while it is watched may have another attempt, or another sink. It is looked at again.
        """
        if sign is None or sign.mark is Mark.WITHDRAWN:
            self._jobs.pop(job_id, None)
            return
        known = self._jobs.get(job_id)
        if known is None:
            if sign.mark.is_living:
                self._jobs[job_id] = _Watched(sign, answered, asked)
            return
        if sign != known.sign and sign.mark.is_living:
            known.beats += 1
        known.sign, known.looked = sign, asked

    def owner(self) -> str | None:
        """The job that lives and has the prefix; None = none was seen.

        Of two jobs that claim it at the same time, the one with the smaller id gets it.
        """
        for job_id, job in sorted(self._jobs.items()):
            lives = job.may_live and job.beats >= _BEATS_OF_LIVING
            if lives and (job.sign.mark is Mark.OWNS or job_id < self._job_id):
                return job_id
        return None

    def is_over(self) -> bool:
        """Whether each watched job was looked at for the whole time."""
        return all(job.looked - job.since >= WATCH_SECONDS for job in self._jobs.values())

    def dead(self) -> dict[str, Mark]:
        """Jobs that never made a beat, with the marks that later jobs shall find: they need not watch them again."""
        return {
            job_id: job.sign.mark.of_dead
            for job_id, job in self._jobs.items()
            if job.may_live and not job.beats
        }
