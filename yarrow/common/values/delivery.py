"""Delivery: what sources and sinks declare about records when a job fails and recovers.

Owner: none (frozen values). Sources and sinks declare these, specs carry them, and the rules of a program compare them.
Must not decide anything about a whole job.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, StrEnum
from typing import Final

import msgspec


class DeliveryGuarantee(Enum):
    """The promise of a sink about records when the job fails and recovers."""

    EXACTLY_ONCE = 0
    AT_LEAST_ONCE = 1
    NONE = 2


class Replay(StrEnum):
    """What a source gives again when a job has failed."""

    #: A checkpoint holds positions, and behind them the same records come again, each once.
    EXACT_POSITIONS = "exact positions"
    #: The input is finite and fixed, but it has no positions: a split that was begun is read again from its beginning.
    BOUNDED_SNAPSHOT = "bounded snapshot"
    #: Records that were not acknowledged come again, and some of the acknowledged ones too.
    AT_LEAST_ONCE = "at least once"
    #: A record that was read never comes again.
    NONE = "none"


class KeptBy(StrEnum):
    """How a sink keeps a guarantee."""

    #: Rows are prepared at a checkpoint. Any process can commit them by what the checkpoint holds, any number of times.
    TRANSACTION = "a transaction that another process can finish"
    #: Rows lie where nobody reads them, and a marker that is set once shows them.
    STAGED_ROWS = "staged rows with a marker"
    #: A row replaces the row of the same key, so that a second write leaves the target as it is.
    IDEMPOTENT_KEY = "idempotent by key"
    #: Rows are outside before a checkpoint is complete. Rows behind the checkpoint are written again.
    FLUSH = "rows flushed before each checkpoint"
    #: The sink does not keep the guarantee.
    NOT_AT_ALL = "not at all"


#: From the strongest to the weakest.
_REPLAYS: Final = tuple(Replay)


def weakest_replay(replays: Iterable[Replay]) -> Replay:
    """Return the weakest of the declarations; EXACT_POSITIONS for none."""
    return max(replays, key=_REPLAYS.index, default=Replay.EXACT_POSITIONS)


#: Means by which readers see no row of a failed attempt, and no row twice.
_ONCE: Final = (KeptBy.TRANSACTION, KeptBy.STAGED_ROWS)

#: Guarantees from the strongest to the weakest.
STRONGEST_FIRST: Final = tuple(DeliveryGuarantee)


class SinkDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """What one sink declares, and what the program asks of it."""

    #: The class of the sink, for people.
    connector: str
    #: None = the program asks for nothing: the strongest guarantee that holds is chosen.
    asked: DeliveryGuarantee | None = None
    #: A guarantee that is missing is not kept.
    kept_by: dict[DeliveryGuarantee, KeptBy] = msgspec.field(default_factory=dict)
    #: Names of the fields by which rows replace each other; empty = the sink knows no key.
    upsert_key: tuple[str, ...] = ()

    @property
    def replaces_by_key(self) -> bool:
        """Whether the sink keeps any guarantee by writes that are idempotent by key."""
        return KeptBy.IDEMPOTENT_KEY in self.kept_by.values()

    def means(self, guarantee: DeliveryGuarantee) -> KeptBy:
        """Return how the sink keeps a guarantee. A sink that keeps a stronger one keeps a weaker one by the same means.

        Idempotent writes are no means of exactly once: readers see a row go back to an older value after a failure.
        """
        if guarantee is DeliveryGuarantee.EXACTLY_ONCE:
            found = self.kept_by.get(guarantee, KeptBy.NOT_AT_ALL)
            return found if found in _ONCE else KeptBy.NOT_AT_ALL
        for each in STRONGEST_FIRST[guarantee.value :: -1]:
            found = self.kept_by.get(each, KeptBy.NOT_AT_ALL)
            if found is not KeptBy.NOT_AT_ALL:
                return found
        return KeptBy.NOT_AT_ALL

    def keeps(self, guarantee: DeliveryGuarantee) -> bool:
        """Whether the sink keeps a guarantee; every sink keeps NONE."""
        return guarantee is DeliveryGuarantee.NONE or self.means(guarantee) is not KeptBy.NOT_AT_ALL

    def strongest(self, bound: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE) -> DeliveryGuarantee:
        """Return the strongest guarantee that the sink keeps and that is no stronger than `bound`."""
        return next(each for each in STRONGEST_FIRST[bound.value :] if self.keeps(each))
