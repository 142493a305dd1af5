"""Pattern: a sequence of steps that records have to take, one after the other.

Owner: the thread that builds the program; nobody changes a pattern that runs. Each method changes the last step and
returns the pattern, or appends a step and returns the longer pattern. What cannot match is refused at the line that
asks for it. Meaning and names are those of Flink's `org.apache.flink.cep.pattern.Pattern`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import NamedTuple

from yarrow.cep.after_match_skip_strategy import AfterMatchSkipStrategy
from yarrow.cep.conditions import (
    ColumnCondition,
    Condition,
    IterativeCondition,
    SimpleCondition,
    SubtypeCondition,
    as_condition,
)
from yarrow.common.time import Duration, Time, milliseconds_of

__all__ = ["Contiguity", "MalformedPatternError", "Pattern", "Repetition", "Step", "WithinType"]


class MalformedPatternError(ValueError):
    """A pattern that cannot match, or whose meaning would be open."""


class WithinType(StrEnum):
    """Which two records a time limit lies between."""

    #: The first and the last record of a match.
    FIRST_AND_LAST = "first_and_last"
    #: The record of a step and the record that the match took before.
    PREVIOUS_AND_CURRENT = "previous_and_current"


class Contiguity(StrEnum):
    """Which records may come between a step and the one before."""

    #: None.
    STRICT = "next"
    #: Those that the step does not take.
    RELAXED = "followed_by"
    #: Any.
    ANY = "followed_by_any"
    #: The step takes no record: the next one must not fulfil its condition.
    NOT_NEXT = "not_next"
    #: The step takes no record: none up to the next one taken may fulfil its condition.
    NOT_FOLLOWED_BY = "not_followed_by"

    @property
    def is_negative(self) -> bool:
        """True for the two that take no record."""
        return self in (Contiguity.NOT_NEXT, Contiguity.NOT_FOLLOWED_BY)


class ConditionPart(NamedTuple):
    """A condition, joined to those before it by `and` or by `or`."""

    joined_by_or: bool
    condition: SimpleCondition | IterativeCondition


@dataclass(slots=True)
class Repetition:
    """How many records a step takes, or how often a group runs."""

    minimum: int
    #: None = any number.
    maximum: int | None
    #: Milliseconds below which two neighbouring records of the step lie apart; None = no limit.
    window_ms: int | None = None
    contiguity: Contiguity = Contiguity.RELAXED
    is_greedy: bool = False
    until: SimpleCondition | IterativeCondition | None = None


@dataclass(slots=True)
class Step:
    """One step of a pattern: records of one kind, a group of steps, or records that must not come."""

    #: None for a group.
    name: str | None
    contiguity: Contiguity
    conditions: list[ConditionPart]
    group: Pattern | None = None
    #: None = once.
    repetition: Repetition | None = None
    is_optional: bool = False
    within_ms: int | None = None
    within_previous_ms: int | None = None

    def __str__(self) -> str:
        return "a group" if self.name is None else f"'{self.name}'"

    @property
    def is_greedy(self) -> bool:
        """True if the step takes as many records as it can."""
        return self.repetition is not None and self.repetition.is_greedy

    def all_conditions(self) -> Iterator[SimpleCondition | IterativeCondition]:
        """Its own conditions and the end of its loop."""
        yield from (part.condition for part in self.conditions)
        if self.repetition is not None and self.repetition.until is not None:
            yield self.repetition.until

    def column_conditions(self) -> Iterator[ColumnCondition]:
        """Those of them that are over columns."""
        return (each for each in self.all_conditions() if isinstance(each, ColumnCondition))

    @property
    def ends_with_an_option(self) -> bool:
        """True if the step, or the last step of the group, may be left out."""
        return self.is_optional or (self.group is not None and self.group.steps[-1].ends_with_an_option)


class Pattern:
    """A sequence of steps. Made by `Pattern.begin`."""

    def __init__(self, steps: list[Step], skip_strategy: AfterMatchSkipStrategy) -> None:
        """For this module: programs call `begin`."""
        self._steps = steps
        self._skip_strategy = skip_strategy

    @staticmethod
    def begin(
        first: str | Pattern, after_match_skip_strategy: AfterMatchSkipStrategy | None = None
    ) -> Pattern:
        """Return a pattern of one step, or of a group of steps.

        `after_match_skip_strategy`: that of the whole pattern; None = `no_skip()`.
        """
        strategy = (
            AfterMatchSkipStrategy.no_skip()
            if after_match_skip_strategy is None
            else after_match_skip_strategy
        )
        if not isinstance(strategy, AfterMatchSkipStrategy):
            raise TypeError(
                f"begin takes an AfterMatchSkipStrategy, such as skip_to_next(), not {strategy!r}"
            )
        return Pattern([], strategy)._append("begin", first, Contiguity.RELAXED)

    # ------------------------------------------------------------------ further steps

    def next(self, step: str | Pattern) -> Pattern:
        """Append a step whose record comes directly after the one before."""
        return self._append("next", step, Contiguity.STRICT)

    def followed_by(self, step: str | Pattern) -> Pattern:
        """Append a step that takes the first record which fulfils its condition; others may come before."""
        return self._append("followed_by", step, Contiguity.RELAXED)

    def followed_by_any(self, step: str | Pattern) -> Pattern:
        """Append a step that takes any record which fulfils its condition, each in a match of its own."""
        return self._append("followed_by_any", step, Contiguity.ANY)

    def not_next(self, name: str) -> Pattern:
        """Append a step whose condition the next record must not fulfil."""
        return self._append("not_next", name, Contiguity.NOT_NEXT)

    def not_followed_by(self, name: str) -> Pattern:
        """Append a step whose condition no record may fulfil until the next step takes one.

        At the end of a pattern it needs `within`: the pattern matches when that time has passed.
        """
        return self._append("not_followed_by", name, Contiguity.NOT_FOLLOWED_BY)

    def _append(self, call: str, step: str | Pattern, contiguity: Contiguity) -> Pattern:
        group: Pattern | None = None
        if isinstance(step, Pattern) and not contiguity.is_negative:
            group, name = step, None
        elif isinstance(step, str):
            name = _checked_name(call, step)
        else:
            raise TypeError(
                f"{call} takes the name of a step{'' if contiguity.is_negative else ' or a Pattern'}, not {step!r}"
            )
        if contiguity.is_negative and self._last.ends_with_an_option:
            raise MalformedPatternError(
                f"{call}({name!r}) behind {self._last}, which is or ends with an optional step: it would be open where"
                " the forbidden records begin. Use two patterns, one with the optional step and one without"
            )
        added = Step(name, contiguity, [], group)
        known = set(self.names())
        for each in [name] if name is not None else list(group.names() if group is not None else ()):
            if each in known:
                raise MalformedPatternError(
                    f"{call}: the pattern has a step '{each}' already. Give each step a name of its own"
                )
        return Pattern([*self._steps, added], self._skip_strategy)

    # ------------------------------------------------------------------ what the last step takes

    def where(self, condition: Condition) -> Pattern:
        """Let the last step take only records that fulfil a condition, too."""
        self._add_condition("where", condition, joined_by_or=False)
        return self

    def or_where(self, condition: Condition) -> Pattern:
        """Let the last step also take records that fulfil this condition instead of all those before it."""
        self._add_condition("or_where", condition, joined_by_or=True)
        return self

    def subtype(self, subtype: type) -> Pattern:
        """Let the last step take only records of a class, too."""
        if not isinstance(subtype, type):
            raise TypeError(f"subtype takes a class, not {subtype!r}")
        self._add_condition("subtype", SubtypeCondition(subtype), joined_by_or=False)
        return self

    def _add_condition(self, call: str, condition: object, *, joined_by_or: bool) -> None:
        if self._last.group is not None:
            raise MalformedPatternError(
                f"{call}: a group has no condition of its own. Give its steps conditions"
            )
        self._last.conditions.append(ConditionPart(joined_by_or, as_condition(call, condition)))

    # ------------------------------------------------------------------ how often

    def one_or_more(self, window_time: Time | Duration | None = None) -> Pattern:
        """Let the last step take one record or more.

        `window_time`: the time below which two neighbouring ones lie apart.
        """
        return self._repeat("one_or_more()", 1, None, window_time)

    def times(
        self, from_times: int, to_times: int | None = None, window_time: Time | Duration | None = None
    ) -> Pattern:
        """Let the last step take so many records: exactly `from_times`, or from `from_times` to `to_times`.

        `window_time`: the time below which two neighbouring ones lie apart.
        """
        upper = from_times if to_times is None else to_times
        return self._repeat(f"times({from_times!r}, {upper!r})", from_times, upper, window_time)

    def times_or_more(self, times: int, window_time: Time | Duration | None = None) -> Pattern:
        """Let the last step take so many records or more.

        `window_time`: the time below which two neighbouring ones lie apart.
        """
        return self._repeat(f"times_or_more({times!r})", times, None, window_time)

    def _repeat(
        self, call: str, minimum: int, maximum: int | None, window: Time | Duration | None
    ) -> Pattern:
        step = self._last
        if step.contiguity.is_negative:
            raise MalformedPatternError(f"{call}: the step {step} takes no record")
        if step.repetition is not None:
            raise MalformedPatternError(f"{call}: the step {step} has a number of records already")
        for number in (minimum, minimum if maximum is None else maximum):
            if isinstance(number, bool) or not isinstance(number, int) or number < 1:
                raise MalformedPatternError(
                    f"{call}: a step takes at least one record. Give whole numbers from 1 on; optional() allows none"
                )
        if maximum is not None and maximum < minimum:
            raise MalformedPatternError(f"{call}: give the lower number first")
        step.repetition = Repetition(
            minimum, maximum, None if window is None else _checked_time(call, window)
        )
        return self

    def optional(self) -> Pattern:
        """Let a match do without the last step."""
        step = self._last
        if step.contiguity.is_negative:
            raise MalformedPatternError(f"optional(): the step {step} takes no record")
        if step.is_optional:
            raise MalformedPatternError(f"optional(): the step {step} is optional already")
        if len(self._steps) > 1 and self._steps[-2].is_greedy:
            raise MalformedPatternError(
                f"optional(): the step {step} comes behind {self._steps[-2]}, which is greedy. Make one of them plain"
            )
        step.is_optional = True
        return self

    def greedy(self) -> Pattern:
        """Let the last step take as many records as it can before the next step begins."""
        step, repetition = self._last, self._repetition("greedy()")
        if step.group is not None:
            raise MalformedPatternError("greedy(): a group cannot be greedy. Make its last step greedy")
        if repetition.contiguity is Contiguity.ANY:
            raise MalformedPatternError(f"greedy(): the step {step} takes all combinations of records")
        repetition.is_greedy = True
        return self

    def consecutive(self) -> Pattern:
        """Let no record come between those of the last step."""
        self._set_inner("consecutive()", Contiguity.STRICT)
        return self

    def allow_combinations(self) -> Pattern:
        """Let the last step pass over records that it could take, each choice in a match of its own."""
        if self._last.is_greedy:
            raise MalformedPatternError(f"allow_combinations(): the step {self._last} is greedy")
        self._set_inner("allow_combinations()", Contiguity.ANY)
        return self

    def _set_inner(self, call: str, contiguity: Contiguity) -> None:
        repetition = self._repetition(call)
        if repetition.contiguity is not Contiguity.RELAXED:
            raise MalformedPatternError(
                f"{call}: the step {self._last} is consecutive() or allow_combinations() already. Choose one of them"
            )
        repetition.contiguity = contiguity

    def until(self, until_condition: Condition) -> Pattern:
        """End the loop of the last step at a record that fulfils a condition. The step does not take that record."""
        repetition = self._repetition("until")
        if repetition.maximum is not None:
            raise MalformedPatternError(
                f"until: the step {self._last} takes at most {repetition.maximum} records anyway"
            )
        if repetition.until is not None:
            raise MalformedPatternError(f"until: the step {self._last} has such a condition already")
        repetition.until = as_condition("until", until_condition)
        return self

    def _repetition(self, call: str) -> Repetition:
        if self._last.repetition is None:
            raise MalformedPatternError(
                f"{call}: the step {self._last} takes one record. Call one_or_more, times or times_or_more first"
            )
        return self._last.repetition

    def within(
        self, window_time: Time | Duration, within_type: WithinType = WithinType.FIRST_AND_LAST
    ) -> Pattern:
        """Limit the time of a match: two records must lie less than `window_time` apart.

        FIRST_AND_LAST: the first and the last record of the whole pattern; the shortest of several limits counts.
        PREVIOUS_AND_CURRENT: each record of the last step, and the record that the match took before it.
        """
        length = _checked_time("within", window_time)
        if WithinType(within_type) is WithinType.FIRST_AND_LAST:
            self._last.within_ms = length
        else:
            self._last.within_previous_ms = length
        return self

    # ------------------------------------------------------------------ for whoever runs the pattern

    @property
    def _last(self) -> Step:
        return self._steps[-1]

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps, the first one first."""
        return tuple(self._steps)

    @property
    def after_match_skip_strategy(self) -> AfterMatchSkipStrategy:
        """Which other matches go when the pattern has matched."""
        return self._skip_strategy

    def all_steps(self) -> Iterator[Step]:
        """The steps and the steps of groups, each group before its own."""
        for step in self._steps:
            yield step
            if step.group is not None:
                yield from step.group.all_steps()

    def names(self) -> Iterator[str]:
        """The names of all steps, also of those in groups."""
        return (step.name for step in self.all_steps() if step.name is not None)

    def conditions(self) -> Iterator[SimpleCondition | IterativeCondition]:
        """All conditions, also the ends of loops."""
        return chain.from_iterable(step.all_conditions() for step in self.all_steps())

    @property
    def within_ms(self) -> int | None:
        """The time below which the last record of a match comes behind the first; None = no limit."""
        return min((step.within_ms for step in self.all_steps() if step.within_ms is not None), default=None)

    def endless_step(self) -> Step | None:
        """The first step whose partial matches nothing ends: no time limit, and no `until`; None = there is none."""
        if self.within_ms is not None:
            return None
        for step in self.all_steps():
            repetition = step.repetition
            if repetition is None or repetition.maximum is not None or repetition.until is not None:
                continue
            if repetition.window_ms is None and step.within_previous_ms is None:
                return step
        return None


def _checked_name(call: str, name: str) -> str:
    if not name or ":" in name:
        raise MalformedPatternError(f"{call}({name!r}): the name of a step has a letter, and no ':'")
    return name


def _checked_time(call: str, time: Time | Duration) -> int:
    if not isinstance(time, Time | Duration):
        raise TypeError(f"{call} takes a Time or a Duration, such as Duration.of_seconds(10), not {time!r}")
    length = milliseconds_of(time)
    if length < 1:
        raise MalformedPatternError(
            f"{call}: a time limit of {length} ms leaves room for no record. Give 1 ms or more"
        )
    return length
