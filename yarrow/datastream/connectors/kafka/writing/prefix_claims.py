"""PrefixWatch: decides whether another living job has the prefix of a sink's transactions.

Owner: the task's thread, while a sink starts. Pure: it takes what brokers tell, with times, and asks nobody.

Each subtask of a sink with the prefix has a name of its own on the brokers, under which it never writes. The first one
has `<prefix>-owner-<job id>`, and the others have `-<subtask>` behind it. A living subtask gives its name the next
epoch at intervals: a beat. The time-out that it asks for with a beat means nothing to brokers. It tells what the
subtask says of its job (docs/design/0051-owners-of-transaction-prefixes.md).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final, NamedTuple, Self

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


class Holder(NamedTuple):
    """A subtask of a job that has the prefix, or claims it. Sinks of one job that share a prefix share holders."""

    job_id: str
    subtask: int = 0


class Mark(IntEnum):
    """The state of a job, as a holder tells it by the time-out of its name, in ms."""

    #: It looks whether other jobs have the prefix. The first subtask alone says so.
    CLAIMS = 1001
    #: It has the prefix.
    OWNS = 1002
    #: It has had the prefix, and may begin again: this subtask has ended.
    RELEASED = 1003
    #: It never had the prefix.
    WITHDRAWN = 1004

    @property
    def is_living(self) -> bool:
        """Whether the holder beats, unless it was killed."""
        return self in {Mark.CLAIMS, Mark.OWNS}

    @property
    def had_prefix(self) -> bool:
        """Whether an earlier attempt of the job has had the prefix."""
        return self in {Mark.OWNS, Mark.RELEASED}

    @property
    def of_dead(self) -> Mark:
        """The mark that others give the name of a holder with this mark, if it was killed."""
        return Mark.RELEASED if self.had_prefix else Mark.WITHDRAWN


@dataclass(frozen=True, slots=True)
class Sign:
    """The name of a holder, as the coordinator tells it: each beat makes another one."""

    mark: Mark
    producer_id: int
    producer_epoch: int

    @classmethod
    def of(cls, facts: TransactionFacts | None) -> Self | None:
        """Read what the coordinator tells; None = the name is not known, or its time-out is no mark."""
        if facts is None or facts.timeout_ms not in set(Mark):
            return None
        return cls(Mark(facts.timeout_ms), facts.producer_id, facts.producer_epoch)


def owner_name(prefix: str, holder: Holder) -> str:
    """The name of a holder of this prefix."""
    name = f"{owners_prefix(prefix)}{holder.job_id}"
    return f"{name}-{holder.subtask}" if holder.subtask else name


def owners_prefix(prefix: str) -> str:
    """How the names of all holders of this prefix begin."""
    return f"{prefix}-owner-"


def holder_of(prefix: str, name: str) -> Holder | None:
    """Whose name it is; None = it is no such name."""
    job_id, _, subtask = name.removeprefix(owners_prefix(prefix)).partition("-")
    is_job = len(job_id) == _JOB_ID_LENGTH and _JOB_ID_DIGITS.issuperset(job_id)
    if not is_job or not (subtask.isdecimal() or not subtask):
        return None
    holder = Holder(job_id, int(subtask or 0))
    return holder if owner_name(prefix, holder) == name else None


@dataclass(slots=True)
class _Watched:
    """A holder of another job that lived at the first look, as far as brokers knew."""

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

    A job lives while one of its holders does. Each holder has a clock of its own, which begins behind the first look at
    it. So slow looks take no time from a watch.
    """

    def __init__(self, job_id: str) -> None:
        self._job_id = job_id
        self._holders: dict[Holder, _Watched] = {}

    @property
    def watched(self) -> list[Holder]:
        """The holders of other jobs that may live or come back."""
        return sorted(self._holders)

    def saw(self, holder: Holder, sign: Sign | None, asked: float, answered: float) -> None:
        """Take what the coordinator tells of a holder of another job, with the seconds of question and answer.

        One that says RELEASED while it is watched may have another attempt, or another sink. It is looked at again.
        """
        if sign is None or sign.mark is Mark.WITHDRAWN:
            self._holders.pop(holder, None)
            return
        known = self._holders.get(holder)
        if known is None:
            if sign.mark.is_living:
                self._holders[holder] = _Watched(sign, answered, asked)
            return
        if sign != known.sign and sign.mark.is_living:
            known.beats += 1
        known.sign, known.looked = sign, asked

    def owner(self) -> str | None:
        """The job that lives and has the prefix; None = none was seen.

        Of two jobs that claim it at the same time, the one with the smaller id gets it.
        """
        for holder, known in sorted(self._holders.items()):
            lives = known.may_live and known.beats >= _BEATS_OF_LIVING
            if lives and (known.sign.mark is Mark.OWNS or holder.job_id < self._job_id):
                return holder.job_id
        return None

    def is_over(self) -> bool:
        """Whether each watched holder was looked at for the whole time."""
        return all(known.looked - known.since >= WATCH_SECONDS for known in self._holders.values())

    def dead(self) -> dict[Holder, Mark]:
        """The holders that never made a beat, with the marks that later jobs shall find.

        So later jobs need not watch them again.
        """
        return {
            holder: known.sign.mark.of_dead
            for holder, known in self._holders.items()
            if known.may_live and not known.beats
        }
