"""The meaning of patterns by brute force: all ways to lay the steps of a pattern over some records.

Records are pairs (letter, time). A pattern is a list of `Kind`s, from which both the Pattern and the model are
made. The model unrolls loops and groups into plain sequences of slots, and tries all rising positions for each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, takewhile
from operator import itemgetter
from typing import Any, NamedTuple

from yarrow.cep.after_match_skip_strategy import AfterMatchSkipStrategy
from yarrow.cep.pattern import Pattern, WithinType
from yarrow.common import Time

Records = Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Kind:
    """A step: its name, the letters that it takes, and how it follows on what is before it."""

    name: str
    letters: str
    contiguity: str = "followed_by"
    group: tuple[Kind, ...] = ()
    least: int = 1
    #: None = any number.
    most: int | None = 1
    inner: str = "followed_by"
    optional: bool = False
    greedy: bool = False
    until: str = ""
    gap: int | None = None
    inner_gap: int | None = None


@dataclass(frozen=True)
class Whole:
    """A pattern with its time limit and skip strategy."""

    kinds: tuple[Kind, ...]
    within: int | None = None
    skip: AfterMatchSkipStrategy = field(default_factory=AfterMatchSkipStrategy.no_skip)

    def pattern(self, letter: Callable[[Any], str] = itemgetter(0)) -> Pattern:
        """The pattern itself; `letter` gives that of a record."""
        return self.pattern_of(lambda letters: _in(letters, letter))

    def pattern_of(self, condition: Callable[[str], Any]) -> Pattern:
        """The pattern itself; `condition` makes the condition of records that have one of some letters."""
        pattern = _pattern(self.kinds, self.skip, condition)
        return pattern if self.within is None else pattern.within(Time.milliseconds(self.within))


def _pattern(kinds: Sequence[Kind], skip: AfterMatchSkipStrategy, condition: Callable[[str], Any]) -> Pattern:
    pattern: Pattern | None = None
    for kind in kinds:
        step: Any = (
            _pattern(kind.group, AfterMatchSkipStrategy.no_skip(), condition) if kind.group else kind.name
        )
        pattern = Pattern.begin(step, skip) if pattern is None else getattr(pattern, kind.contiguity)(step)
        if not kind.group:
            pattern = pattern.where(condition(kind.letters))
        if kind.most is None or kind.most > 1:
            window = None if kind.inner_gap is None else Time.milliseconds(kind.inner_gap)
            pattern = (
                pattern.times_or_more(kind.least, window)
                if kind.most is None
                else pattern.times(kind.least, kind.most, window)
            )
            if kind.inner == "next":
                pattern = pattern.consecutive()
            elif kind.inner == "followed_by_any":
                pattern = pattern.allow_combinations()
        if kind.greedy:
            pattern = pattern.greedy()
        if kind.until:
            pattern = pattern.until(condition(kind.until))
        if kind.optional:
            pattern = pattern.optional()
        if kind.gap is not None:
            pattern = pattern.within(Time.milliseconds(kind.gap), WithinType.PREVIOUS_AND_CURRENT)
    assert pattern is not None
    return pattern


def _in(letters: str, letter: Callable[[Any], str]) -> Callable[[Any], bool]:
    return lambda record: letter(record) in letters


class Blocked(NamedTuple):
    """Letters that may not come behind a greedy step; one of `freed` lifts the ban."""

    letters: str
    freed: str


@dataclass(frozen=True)
class Slot:
    """One record to take, and which records may stand between the one before and it."""

    name: str
    letters: str
    contiguity: str
    #: Letters that neither a record in between nor the one taken may have.
    forbidden: str
    #: The same for the record directly behind the one before.
    forbidden_first: str
    blocked: Blocked | None
    #: Letters that the record taken may not have, and letters that none in between may have.
    ends: str
    passes_not: str
    gap: int | None


@dataclass(frozen=True)
class Tail:
    """What has to follow behind the last slot."""

    forbidden: str = ""
    forbidden_first: str = ""
    blocked: Blocked | None = None
    #: True if a further record has to show that it is not forbidden.
    needs_next: bool = False
    waits: bool = False
    gap: int | None = None


@dataclass(frozen=True)
class _Carry:
    forbidden: str = ""
    forbidden_first: str = ""
    blocked: Blocked | None = None
    needs_next: bool = False
    waits: bool = False
    gap: int | None = None


def unrolled(kinds: Sequence[Kind], most: int) -> list[tuple[tuple[Slot, ...], Tail]]:
    """All plain sequences of a pattern with at most so many slots."""
    found = {
        (slots, Tail(*(getattr(carry, name) for name in Tail.__dataclass_fields__)))
        for slots, carry in _sequences(tuple(kinds), _Carry(), None, "", most)
        if slots
    }
    return sorted(found, key=repr)


_Unrolled = Iterator[tuple[tuple[Slot, ...], _Carry]]


def _sequences(kinds: tuple[Kind, ...], carry: _Carry, head: str | None, ends: str, most: int) -> _Unrolled:
    if not kinds:
        yield (), carry
        return
    for slots, after in _of_kind(kinds[0], kinds[1:], carry, head, ends, most):
        for others, last in _sequences(kinds[1:], after, None, ends, most - len(slots)):
            yield slots + others, last


def _of_kind(
    kind: Kind, following: tuple[Kind, ...], carry: _Carry, head: str | None, ends: str, most: int
) -> _Unrolled:
    if kind.contiguity == "not_followed_by":
        gap = min((each for each in (carry.gap, kind.gap) if each is not None), default=None)
        yield (
            (),
            _Carry(
                carry.forbidden + kind.letters,
                carry.forbidden_first,
                carry.blocked,
                carry.needs_next,
                True,
                gap,
            ),
        )
    elif kind.contiguity == "not_next":
        first = (
            carry.forbidden_first + kind.letters + ("" if carry.blocked is None else carry.blocked.letters)
        )
        yield (), _Carry(carry.forbidden, first, None, True, carry.waits, carry.gap)
    elif kind.group:
        yield from _of_group(kind, following, carry, head, ends, most)
    else:
        yield from _of_records(kind, following, carry, head, ends, most)


def _between(kind: Kind, following: tuple[Kind, ...]) -> tuple[str, str]:
    """Letters forbidden between two records of a step, and directly behind one that may be the last."""
    forbidden = "".join(each.letters for each in takewhile(_not_followed_by, following))
    if forbidden or not following or following[0].contiguity != "not_next":
        return forbidden, ""
    greedy = kind.letters if kind.greedy and kind.least != kind.most else ""
    return "", "".join(set(following[0].letters) - set(greedy))


def _not_followed_by(kind: Kind) -> bool:
    return kind.contiguity == "not_followed_by"


def _of_records(
    kind: Kind, following: tuple[Kind, ...], carry: _Carry, head: str | None, ends: str, most: int
) -> _Unrolled:
    greedy = Blocked(kind.letters, kind.until) if kind.greedy and kind.least != kind.most else None
    if kind.optional:
        yield (
            (),
            _Carry(carry.forbidden, carry.forbidden_first, greedy, carry.needs_next, carry.waits, carry.gap),
        )
    inner, direct = _between(kind, following)
    slots: list[Slot] = []
    for number in range(most if kind.most is None else min(kind.most, most)):
        if not number:
            slot = Slot(
                kind.name,
                kind.letters,
                head or kind.contiguity,
                carry.forbidden,
                carry.forbidden_first,
                carry.blocked,
                kind.until + ends,
                ends,
                kind.gap,
            )
        else:
            gaps = [gap for gap in (kind.gap, kind.inner_gap) if gap is not None]
            may_be_last = number >= kind.least
            until = kind.until + ends
            slot = Slot(
                kind.name,
                kind.letters,
                kind.inner,
                inner,
                direct if may_be_last else "",
                None,
                until,
                until,
                min(gaps, default=None),
            )
        slots.append(slot)
        if number + 1 >= kind.least:
            yield tuple(slots), _Carry(blocked=greedy)


def _of_group(
    kind: Kind, following: tuple[Kind, ...], carry: _Carry, head: str | None, ends: str, most: int
) -> _Unrolled:
    inner, direct = _between(kind, following)
    if kind.optional:
        yield (), carry
    runs: list[tuple[tuple[Slot, ...], _Carry]] = [((), carry)]
    # A run may take no record.
    for number in range(max(most, kind.least) if kind.most is None else kind.most):
        longer: list[tuple[tuple[Slot, ...], _Carry]] = []
        for slots, before in runs:
            if number:
                first = before.forbidden_first + (direct if number >= kind.least else "")
                before = _Carry(
                    before.forbidden + inner,
                    first,
                    before.blocked,
                    before.needs_next,
                    before.waits,
                    before.gap,
                )
            begins = kind.inner if number else head or kind.contiguity
            for more, after in _sequences(kind.group, before, begins, ends + kind.until, most - len(slots)):
                longer.append((slots + more, after))
        runs = list(dict.fromkeys(longer))
        if number + 1 >= kind.least:
            yield from runs


# ---------------------------------------------------------------------- laying over records


def _may_pass(
    records: Records,
    last: int,
    until: int,
    slot: Slot | Tail,
    *,
    letters: str,
    contiguity: str,
    passes_not: str,
) -> bool:
    """Whether all records behind `last` and before `until` may stand there."""
    between = range(last + 1, until)
    if contiguity == "next" and len(between):
        return False
    for at in between:
        letter = records[at][0]
        if contiguity == "followed_by" and letter in letters:
            return False
        if letter in passes_not:
            return False
    return True


def _bans_hold(records: Records, last: int, upto: int, slot: Slot | Tail) -> bool:
    """Whether no record behind `last` up to `upto` is forbidden."""
    blocked = slot.blocked
    for at in range(last + 1, upto + 1):
        letter = records[at][0]
        if letter in slot.forbidden or (at == last + 1 and letter in slot.forbidden_first):
            return False
        if blocked is not None:
            if at == last + 1 and letter in blocked.freed:
                blocked = None
            elif letter in blocked.letters and letter not in blocked.freed:
                return False
    return True


class Found(NamedTuple):
    """A match: positions of records with their steps, and when it is complete (None = only with time)."""

    taken: tuple[tuple[str, int], ...]
    time: int
    #: Position of the record that completes it; the number of records if time does.
    at: int


def _fits(records: Records, slots: Sequence[Slot], chosen: Sequence[int], within: int | None) -> bool:
    start = records[chosen[0]][1]
    for number, (slot, position) in enumerate(zip(slots, chosen, strict=True)):
        letter, time = records[position]
        if letter not in slot.letters or letter in slot.ends:
            return False
        if not number:
            blocked = slot.blocked
            if blocked is not None and letter in blocked.letters and letter not in blocked.freed:
                return False
            continue
        last = chosen[number - 1]
        if within is not None and time - start >= within:
            return False
        if slot.gap is not None and time - records[last][1] >= slot.gap:
            return False
        if not _may_pass(
            records,
            last,
            position,
            slot,
            letters=slot.letters,
            contiguity=slot.contiguity,
            passes_not=slot.passes_not,
        ):
            return False
        if not _bans_hold(records, last, position, slot):
            return False
    return True


def _end(records: Records, chosen: Sequence[int], tail: Tail, within: int | None) -> tuple[int, int] | None:
    """(time, position) at which a match is complete; None = it is not."""
    last = chosen[-1]
    if not tail.needs_next and not tail.waits:
        return records[last][1], last
    start = records[chosen[0]][1]
    limits = [start + within] if within is not None else []
    if tail.gap is not None:
        limits.append(records[last][1] + tail.gap)
    upto = last
    while upto + 1 < len(records) and (not limits or records[upto + 1][1] < min(limits)):
        upto += 1
    if tail.needs_next and upto == last:
        return None
    if not tail.waits:
        # Nothing is left that a greedy step could block.
        if not _bans_hold(records, last, last + 1, replace(tail, blocked=None)):
            return None
        return records[last + 1][1], last + 1
    return (min(limits), len(records)) if _bans_hold(records, last, upto, tail) else None


def all_matches(whole: Whole, records: Records) -> list[Found]:
    """All matches without regard to the skip strategy."""
    found: set[Found] = set()
    for slots, tail in unrolled(whole.kinds, len(records)):
        for chosen in combinations(range(len(records)), len(slots)):
            if _fits(records, slots, chosen, whole.within):
                end = _end(records, chosen, tail, whole.within)
                if end is not None:
                    taken = tuple((slot.name, at) for slot, at in zip(slots, chosen, strict=True))
                    found.add(Found(taken, *end))
    return sorted(found)
