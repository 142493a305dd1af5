"""AfterMatchSkipStrategy: which partial and complete matches go when a match has been found.

Owner: none; immutable values. A strategy decides by the positions of records alone: `pruned` knows neither state nor
records. Meaning and names are those of Flink's `org.apache.flink.cep.nfa.aftermatch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

__all__ = ["AfterMatchSkipStrategy", "SkipKind"]


class SkipKind(StrEnum):
    """The five strategies."""

    NO_SKIP = "no_skip"
    SKIP_TO_NEXT = "skip_to_next"
    SKIP_PAST_LAST_EVENT = "skip_past_last_event"
    SKIP_TO_FIRST = "skip_to_first"
    SKIP_TO_LAST = "skip_to_last"


@dataclass(frozen=True, slots=True)
class AfterMatchSkipStrategy:
    """Which matches go when a match has been found; made by one of its static methods."""

    kind: SkipKind
    #: The step of SKIP_TO_FIRST and SKIP_TO_LAST.
    pattern_name: str | None = None
    #: A match without a record of that step, or one that begins with it, is an error.
    throws_on_miss: bool = False

    @staticmethod
    def no_skip() -> AfterMatchSkipStrategy:
        """Emit every possible match."""
        return AfterMatchSkipStrategy(SkipKind.NO_SKIP)

    @staticmethod
    def skip_to_next() -> AfterMatchSkipStrategy:
        """Drop every other match that began with the same record."""
        return AfterMatchSkipStrategy(SkipKind.SKIP_TO_NEXT)

    @staticmethod
    def skip_past_last_event() -> AfterMatchSkipStrategy:
        """Drop every match that began after the match began, and before it ended."""
        return AfterMatchSkipStrategy(SkipKind.SKIP_PAST_LAST_EVENT)

    @staticmethod
    def skip_to_first(pattern_name: str) -> AfterMatchSkipStrategy:
        """Drop every match that began before the first record of a step."""
        return AfterMatchSkipStrategy(SkipKind.SKIP_TO_FIRST, pattern_name)

    @staticmethod
    def skip_to_last(pattern_name: str) -> AfterMatchSkipStrategy:
        """Drop every match that began before the last record of a step."""
        return AfterMatchSkipStrategy(SkipKind.SKIP_TO_LAST, pattern_name)

    def throw_exception_on_miss(self) -> AfterMatchSkipStrategy:
        """Fail if a match has no record of the step, or begins with the one to skip to.

        Without it such a match drops nothing. Raises ValueError for a strategy without a step.
        """
        if self.pattern_name is None:
            raise ValueError(
                f"throw_exception_on_miss is for skip_to_first and skip_to_last, not {self.kind.value}"
            )
        return replace(self, throws_on_miss=True)

    @property
    def is_skip_strategy(self) -> bool:
        """True if a match may drop others: complete ones then wait for partial ones that began earlier."""
        return self.kind is not SkipKind.NO_SKIP

    def prunes_below(self, positions: Mapping[str, Sequence[int]]) -> int | None:
        """The position below which a match has to begin to be dropped; None = nothing is dropped.

        `positions`: those of the records of the match by step, in order. A position is the number of a record.
        Raises ValueError if a match without the record to skip to is an error.
        """
        if self.kind is SkipKind.NO_SKIP:
            return None
        first = min(places[0] for places in positions.values() if places)
        if self.kind is SkipKind.SKIP_TO_NEXT:
            return first + 1
        if self.kind is SkipKind.SKIP_PAST_LAST_EVENT:
            return max(places[-1] for places in positions.values() if places) + 1
        assert self.pattern_name is not None
        found = positions.get(self.pattern_name)
        if not found:
            if self.throws_on_miss:
                raise ValueError(
                    f"{self.kind.value}: the match has no record of the step '{self.pattern_name}'"
                )
            return None
        target = found[0] if self.kind is SkipKind.SKIP_TO_FIRST else found[-1]
        if target == first and self.throws_on_miss:
            raise ValueError(
                f"{self.kind.value}: the match begins with the record of '{self.pattern_name}' to skip to"
            )
        return target
