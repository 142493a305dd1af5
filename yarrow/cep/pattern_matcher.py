"""PatternMatcher: runs the table of a pattern over the records of a key, in their order.

Owner: the task thread, or the caller of `match`; pure. It calls conditions, and has no clock, state or I/O. Time
passes by `advance`, before the records of that time: a partial match has ended when a time limit has passed. Rules
are those of Flink's NFA, as its documentation tells them. See docs/design/0039-patterns.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, Protocol

from yarrow.cep.conditions import IterativeCondition, SimpleCondition, call_of
from yarrow.cep.partial_matches import Complete, PartialMatches, Run
from yarrow.cep.pattern_table import Edge, EdgeAction, PatternTable, RecordTest, Tests
from yarrow.cep.record_decisions import RecordDecisions
from yarrow.cep.record_moves import OneTest
from yarrow.cep.record_step import RecordStep, move_apart


class PatternResult(NamedTuple):
    """A match, or a partial match whose time has passed."""

    #: Records by the name of their step.
    match: dict[str, list[Any]]
    timestamp: int
    timed_out: bool = False


class Observer(Protocol):
    """Is told what runs do, for people who ask why a pattern has matched or not."""

    def took(self, before: Run | None, edge: Edge, after: Run) -> None:
        """A run (None = the empty beginning) has taken the record. `after` has state NOWHERE if it does not go on."""
        ...

    def ignored(self, run: Run, edge: Edge) -> None:
        """A run has passed over the record."""
        ...

    def stopped(self, run: Run) -> None:
        """The record is forbidden: the run has ended."""
        ...

    def broken(self, run: Run) -> None:
        """The record fits nowhere: the run has ended."""
        ...

    def timed_out(self, run: Run, time: int) -> None:
        """The time of a run has passed."""
        ...

    def pruned(self, runs: Sequence[Run]) -> None:
        """Runs have ended by the skip strategy, or because a key has too many."""
        ...


class _ConditionContext(IterativeCondition.Context):
    """What an iterative condition may ask for: the run at hand."""

    def __init__(self, steps: Sequence[str], processing_time: Callable[[], int]) -> None:
        self._numbers = {name: number for number, name in enumerate(steps)}
        self._processing_time = processing_time
        self.matches = PartialMatches.none()
        self.cell = -1
        self.time = 0

    def get_events_for_pattern(self, name: str) -> list[Any]:
        number = self._numbers.get(name)
        if number is None:
            raise KeyError(f"the pattern has no step '{name}'; its steps are {', '.join(self._numbers)}")
        return self.matches.of_step(self.cell, number)

    def timestamp(self) -> int:
        return self.time

    def current_processing_time(self) -> int:
        return self._processing_time()


class PatternMatcher:
    """Runs one pattern; the partial matches of each key are given to each call."""

    def __init__(
        self,
        table: PatternTable,
        processing_time: Callable[[], int],
        max_partial_matches: int | None = None,
        observer: Observer | None = None,
        *,
        gives_timed_out: bool = True,
    ) -> None:
        """`max_partial_matches`: the runs that a key may have at most; None = any number.

        `gives_timed_out`: results also have the partial matches whose time has passed.
        """
        self.table = table
        self._states = table.states
        self._most = max_partial_matches
        self._observer = observer
        self._gives_timed_out = gives_timed_out
        self._tests = [_evaluation(test, self._holds) for test in table.tests]
        self._iterative = table.iterative
        self._context = _ConditionContext(table.steps, processing_time)
        self._begins = [edge for edge in table.states[0].edges if edge.action is EdgeAction.TAKE]
        self._within = table.within_ms
        #: No step has a time limit of its own.
        self._one_limit = all(state.gap_ms is None for state in table.states)
        #: None = runs have to be asked one by one.
        self._decisions: RecordDecisions | None = None
        if table.sees_records_alone and observer is None:
            self._decisions = RecordDecisions(table, list(map(self._call_of, range(len(table.tests)))))
        #: Results of tests for the record at hand, and of those that look at the run at hand.
        self._known: dict[int, bool] = {}
        self._of_run: dict[int, bool] = {}
        self._record: Any = None
        #: Runs that ended because their key had too many.
        self.dropped = 0

    @property
    def within_ms(self) -> int | None:
        """Milliseconds below which the last record of a match comes behind the first; None = no limit."""
        return self._within

    @property
    def moves_by_one_test(self) -> Sequence[OneTest | None] | None:
        """What one test tells of a record, state by state, None for states that ask others; None = it tells too little.

        If it is not None, each run goes its own way, and the only time limit is that of the whole match. Matches leave
        when they are complete, those that began first in front.
        """
        decisions = self._decisions
        if decisions is None or not decisions.keeps_apart or not self._one_limit or self._most is not None:
            return None
        return None if self.table.skip_strategy.is_skip_strategy else decisions.moves

    # ------------------------------------------------------------------ records

    def take(self, matches: PartialMatches, record: Any, timestamp: int) -> Sequence[PatternResult]:
        """Lets each run and the beginning do what they can with a record; returns the matches.

        `advance` has been called with the time of the record. A condition is called only if a run, or the beginning,
        needs it to know what it does. Errors of conditions are raised as they are.
        """
        decisions = self._decisions
        if decisions is None:
            return self._ask(matches, record, timestamp)
        by_state, begins = decisions.on(matches.runs, record)
        if by_state is None and not begins:
            return ()
        if decisions.keeps_apart:
            runs, found = move_apart(matches, record, timestamp, by_state, begins or ())
            return self._behind(matches, runs, found, timestamp)
        step = RecordStep(matches, record, timestamp)
        step.move(matches.runs, by_state, begins or ())
        return self._behind(matches, step.runs, step.found, timestamp)

    def _ask(self, matches: PartialMatches, record: Any, timestamp: int) -> Sequence[PatternResult]:
        """The same run by run, for patterns whose conditions look at the match, and for observers."""
        self._record, self._known = record, {}
        self._context.matches, self._context.time = matches, timestamp
        if not matches.runs:
            begins = self._passed_begins()
            if not begins:
                return []
            step = RecordStep(matches, record, timestamp)
        else:
            step = RecordStep(matches, record, timestamp)
            for run in matches.runs:
                self._follow(step, run)
            begins = self._passed_begins()
        for edge in begins:
            after = step.take(edge, -1, step.position)
            if self._observer is not None:
                self._observer.took(None, edge, after)
        return self._behind(matches, step.runs, step.found, timestamp)

    def _call_of(self, number: int) -> Callable[[Any], bool]:
        """What tests a record alone: the program's own callable, where a test is one condition."""
        parts, evaluate, context = self.table.tests[number].parts, self._tests[number], self._context
        if len(parts) == 1 and isinstance(parts[0].condition, SimpleCondition):
            return call_of(parts[0].condition)
        return lambda record: evaluate(record, context)

    def _behind(
        self, matches: PartialMatches, runs: list[Run], found: list[Complete], timestamp: int
    ) -> Sequence[PatternResult]:
        """Keeps what a record has made of the runs of a key; the matches that leave."""
        if runs is not matches.runs:
            matches.runs[:] = runs
        if found or matches.complete:
            return self._emit(matches, found, timestamp)
        if self._most is not None:
            self._drop_oldest(matches)
        matches.sweep_if_large()
        return ()

    def _passed_begins(self) -> list[Edge]:
        """The edges by which a match begins with the record at hand."""
        self._of_run = {}
        self._context.cell = -1
        return [edge for edge in self._begins if self._passes(edge.tests)]

    def _follow(self, step: RecordStep, run: Run) -> None:
        """Lets one run take, ignore or meet a forbidden record."""
        number, cell, start = run
        self._of_run, self._context.cell = {}, cell
        passed: list[Edge] = []
        for edge in self._states[number].edges:
            gap = edge.gap_ms
            if gap is not None and step.time - step.taken_at(cell) >= gap:
                continue
            if self._passes(edge.tests):
                if edge.action is EdgeAction.STOP:
                    if self._observer is not None:
                        self._observer.stopped(run)
                    return
                passed.append(edge)
        for edge in passed:
            if edge.action is EdgeAction.TAKE:
                after = step.take(edge, cell, start)
                if self._observer is not None:
                    self._observer.took(run, edge, after)
            else:
                step.ignore(edge, cell, start)
                if self._observer is not None:
                    self._observer.ignored(run, edge)
        if not passed and self._observer is not None:
            self._observer.broken(run)

    # ------------------------------------------------------------------ time

    def deadline(self, matches: PartialMatches) -> int | None:
        """When the first run ends without a further record; None = never."""
        runs = matches.runs
        if not runs:
            return None
        if self._one_limit:
            # Runs stand in the order in which they began.
            within = self._within
            return None if within is None else matches.records[runs[0][2]][0] + within
        times = (self._deadline_of(matches, run) for run in runs)
        return min((time for time in times if time is not None), default=None)

    def _deadline_of(self, matches: PartialMatches, run: Run) -> int | None:
        number, cell, start = run
        within, gap = self._within, self._states[number].gap_ms
        whole = None if within is None else matches.records[start][0] + within
        if gap is None:
            return whole
        last = matches.records[matches.cells[cell][1]][0] + gap
        return last if whole is None or last < whole else whole

    def advance(self, matches: PartialMatches, time: int) -> Sequence[PatternResult]:
        """Ends the runs whose time has passed at `time`; returns matches and partial matches by their end."""
        runs = matches.runs
        if not runs:
            return ()
        if self._one_limit:
            # Most often no time has passed: this is `deadline` without its call.
            within = self._within
            if within is None or matches.records[runs[0][2]][0] + within > time:
                return ()
        end = self.deadline(matches)
        if end is None or end > time:
            return ()
        results: list[PatternResult] = []
        while end is not None and end <= time:
            results += self._end_runs(matches, end)
            end = self.deadline(matches)
        return results

    def _end_runs(self, matches: PartialMatches, time: int) -> list[PatternResult]:
        """Ends the runs whose time passes at `time`."""
        runs, states = matches.runs, self._states
        if self._one_limit:
            # Those that began at one time stand together, in front of the others.
            began = matches.records[runs[0][2]][0]
            number = sum(1 for _ in takewhile(lambda run: matches.records[run[2]][0] == began, runs))
            ended = runs[:number]
            del runs[:number]
        else:
            ended = [run for run in runs if self._deadline_of(matches, run) == time]
            runs[:] = [run for run in runs if self._deadline_of(matches, run) != time]
        found = [(cell, start) for number, cell, start in ended if states[number].matches_in_time]
        results = self._timed_out(matches, ended, found, time) if self._gives_timed_out else []
        return results + self._emit(matches, found, time)

    def _timed_out(
        self, matches: PartialMatches, ended: list[Run], found: list[tuple[int, int]], time: int
    ) -> list[PatternResult]:
        """The partial matches among runs that have ended."""
        going_on = {run[1] for run in matches.runs} | {cell for cell, _ in found}
        # What goes on in another way has not timed out.
        cells = dict.fromkeys(cell for _, cell, _ in ended if cell not in going_on)
        if self._observer is not None:
            for run in ended:
                if run[1] in cells:
                    self._observer.timed_out(run, time)
        steps = self.table.steps
        return [PatternResult(matches.match(cell, steps), time, timed_out=True) for cell in cells]

    # ------------------------------------------------------------------ matches

    def _emit(self, matches: PartialMatches, found: list[tuple[int, int]], time: int) -> list[PatternResult]:
        """The matches that leave now. With a skip strategy each waits for runs that began earlier, and drops others."""
        if self.table.skip_strategy.is_skip_strategy:
            matches.complete.extend(found)
            matches.complete.sort(key=_start)
            results = self._that_wait_for_none(matches, time)
            while self._drop_oldest(matches) and matches.complete:
                # A match may have waited for a run that is dropped.
                results += self._that_wait_for_none(matches, time)
        else:
            if len(found) > 1:
                found.sort(key=_start)
            results = [PatternResult(matches.match(cell, self.table.steps), time) for cell, _ in found]
            self._drop_oldest(matches)
        matches.sweep_if_large()
        return results

    def _that_wait_for_none(self, matches: PartialMatches, time: int) -> list[PatternResult]:
        """Takes out the complete matches before which no run began; each drops others by the skip strategy."""
        steps, runs, complete = self.table.steps, matches.runs, matches.complete
        results: list[PatternResult] = []
        while complete and not (runs and min(map(_start_of_run, runs)) < complete[0][1]):
            cell, _ = complete.pop(0)
            results.append(PatternResult(matches.match(cell, steps), time))
            positions = {steps[step]: at for step, at in matches.positions(cell).items()}
            bound = self.table.skip_strategy.prunes_below(positions)
            if bound is not None:
                self._prune(matches, bound)
        return results

    def _prune(self, matches: PartialMatches, bound: int) -> None:
        """Ends all matches that began below a position."""
        if self._observer is not None:
            self._observer.pruned([run for run in matches.runs if run[2] < bound])
        matches.runs[:] = [run for run in matches.runs if run[2] >= bound]
        matches.complete[:] = [each for each in matches.complete if each[1] >= bound]

    def _drop_oldest(self, matches: PartialMatches) -> bool:
        """Ends the runs that began first while the key has too many; False if it has not."""
        most, runs = self._most, matches.runs
        if most is None or len(runs) <= most:
            return False
        excess = len(runs) - most
        by_start = sorted(range(len(runs)), key=lambda at: runs[at][2])
        gone = set(by_start[:excess])
        if self._observer is not None:
            self._observer.pruned([runs[at] for at in sorted(gone)])
        runs[:] = [run for at, run in enumerate(runs) if at not in gone]
        self.dropped += excess
        return True

    # ------------------------------------------------------------------ tests

    def _passes(self, tests: Tests) -> bool:
        for number, needed in tests:
            results = self._of_run if self._iterative[number] else self._known
            result = results.get(number)
            if result is None:
                result = results[number] = self._tests[number](self._record, self._context)
            if result is not needed:
                return False
        return True

    def _holds(self, number: int) -> bool:
        return self._passes(((number, True),))


def _start(found: tuple[int, int]) -> int:
    return found[1]


def _start_of_run(run: Run) -> int:
    return run[2]


def _evaluation(
    test: RecordTest, holds: Callable[[int], bool]
) -> Callable[[Any, IterativeCondition.Context], bool]:
    """What computes the result of a test for the record at hand."""
    if not test.parts and (test.taken is not None or test.unless is not None):
        taken, unless = test.taken, test.unless
        return lambda record, context: (
            (taken is None or holds(taken)) and (unless is None or not holds(unless))
        )
    calls = [
        (part.joined_by_or, part.condition, isinstance(part.condition, IterativeCondition))
        for part in test.parts
    ]

    def evaluate(record: Any, context: IterativeCondition.Context) -> bool:
        result = True
        for at, (joined_by_or, condition, iterative) in enumerate(calls):
            if at and result is joined_by_or:
                continue
            call: Any = condition.filter
            result = bool(call(record, context) if iterative else call(record))
        return result

    return evaluate
