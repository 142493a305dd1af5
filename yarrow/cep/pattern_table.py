"""PatternTable: a pattern as a table of states, each with the edges that a record may take there.

Owner: none; immutable, pure. `compile_pattern` makes the table. A state says for what a partial match waits: it
lists all edges at once, so that whoever runs it follows no empty edge. Rules are those of Flink's NFACompiler, as
its documentation tells them. Must not know records, times of records or state. See docs/design/0039-patterns.md.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from yarrow.cep.after_match_skip_strategy import AfterMatchSkipStrategy
from yarrow.cep.conditions import IterativeCondition
from yarrow.cep.pattern import ConditionPart, Contiguity, MalformedPatternError, Pattern, Repetition, Step

#: (number of a test, the result that an edge needs), all of which have to hold.
Tests = tuple[tuple[int, bool], ...]
#: The target of an edge behind which a partial match does not go on.
NOWHERE: Final = -1


class EdgeAction(Enum):
    """What a partial match does with a record."""

    #: The step takes it.
    TAKE = "take"
    #: It passes over it.
    IGNORE = "ignore"
    #: The record is forbidden: the partial match ends, with all that the record would have made of it.
    STOP = "stop"


class RecordTest(NamedTuple):
    """A question about a record: the conditions of a step, or `taken` without `unless`."""

    parts: tuple[ConditionPart, ...] = ()
    #: Numbers of other tests. `taken` None = any record.
    taken: int | None = None
    unless: int | None = None


class Edge(NamedTuple):
    """The ways in which a record may change a partial match in a state."""

    action: EdgeAction
    tests: Tests
    #: The state behind it, or NOWHERE.
    target: int
    #: Number of the step that takes the record; -1 if the action is not TAKE.
    step: int = -1
    #: The record must come less than so many milliseconds behind the one taken before; None = no limit.
    gap_ms: int | None = None
    #: The pattern has matched behind this edge; it may go on all the same.
    accepts: bool = False
    #: A further state behind it, in which a partial match only waits for its time to pass; NOWHERE = none.
    waits_in: int = NOWHERE


class PatternState(NamedTuple):
    """For what a partial match waits."""

    #: For people.
    label: str
    edges: tuple[Edge, ...]
    #: The pattern has matched when the time of the partial match has passed.
    matches_in_time: bool
    #: The partial match ends so many milliseconds behind its last record; None = no such limit.
    gap_ms: int | None


class PatternTable(NamedTuple):
    """A pattern as a table of states; state 0 waits for the first record and ignores none."""

    #: Names of steps by number.
    steps: tuple[str, ...]
    tests: tuple[RecordTest, ...]
    #: True for tests that look at the partial match.
    iterative: tuple[bool, ...]
    states: tuple[PatternState, ...]
    #: Milliseconds below which the last record of a match comes behind the first; None = no limit.
    within_ms: int | None
    skip_strategy: AfterMatchSkipStrategy

    #: Numbers of the tests of which a record passes one, if any run or beginning cares for it; None = all may.
    caring: tuple[int, ...] | None

    @property
    def sees_records_alone(self) -> bool:
        """True if what a record does to a partial match depends on its state and the record's tests, and on no time."""
        return not any(self.iterative) and all(
            edge.gap_ms is None for state in self.states for edge in state.edges
        )

    @property
    def fingerprint(self) -> str:
        """A text that is the same for tables whose stored partial matches mean the same."""
        edges = ";".join(
            ",".join(f"{edge.action.value}{edge.step}>{edge.target}/{edge.waits_in}" for edge in state.edges)
            for state in self.states
        )
        return f"{'|'.join(self.steps)}:{edges}"


def compile_pattern(pattern: Pattern) -> PatternTable:
    """The table of a pattern. Raises MalformedPatternError for one that cannot match."""
    strategy = pattern.after_match_skip_strategy
    names = tuple(pattern.names())
    if strategy.pattern_name is not None and strategy.pattern_name not in names:
        raise MalformedPatternError(
            f"{strategy.kind.value}('{strategy.pattern_name}'): the pattern has no such step. Its steps are"
            f" {', '.join(names)}"
        )
    negative = next(
        (
            each
            for each in pattern.all_steps()
            if each.name == strategy.pattern_name and each.contiguity.is_negative
        ),
        None,
    )
    if strategy.pattern_name is not None and negative is not None:
        raise MalformedPatternError(
            f"{strategy.kind.value}('{strategy.pattern_name}'): the step is {negative.contiguity.value}, so no match"
            " has a record of it. Name a step that takes records"
        )
    first = pattern.steps[0]
    if first.within_previous_ms is not None and first.repetition is None and first.group is None:
        raise MalformedPatternError(f"within: no record comes before that of {first}. Use FIRST_AND_LAST")
    compiler = _Compiler(pattern)
    states = compiler.states()
    return PatternTable(
        names,
        tuple(compiler.tests),
        tuple(compiler.iterative()),
        states,
        pattern.within_ms,
        strategy,
        compiler.caring(),
    )


class _Guard(NamedTuple):
    """A forbidden record: the test that it fulfils, and the time limit of its step."""

    test: int
    gap_ms: int | None


#: The forbidden records until the next one is taken.
_Guards = frozenset[_Guard]
#: Makes the node that waits for what follows, under guards. The test, if any, is that of a greedy step before it: no
#: record that fulfils it may come there.
_Entry = Callable[[_Guards, int | None], "_Node"]
_NO_GUARDS: Final[_Guards] = frozenset()


class _Node:
    """A state that is being made; its skips are edges that need no record."""

    def __init__(self) -> None:
        self.label = ""
        self.takes: list[tuple[Tests, _Node, int]] = []
        self.ignores: list[tuple[Tests, _Node]] = []
        self.skips: list[tuple[Tests, _Node]] = []
        self.stops: list[Tests] = []
        self.gap_ms: int | None = None
        self.is_pending = False
        #: Its skips need a record, which they do not take.
        self.needs_record = False


class _Memo:
    """An entry that makes each node once, and fills it later: loops lead back to themselves."""

    def __init__(self, compiler: _Compiler, fill: Callable[[_Node, _Guards, int | None], None]) -> None:
        self._compiler = compiler
        self._fill = fill
        self._nodes: dict[tuple[_Guards, int | None], _Node] = {}

    def __call__(self, guards: _Guards, blocked: int | None) -> _Node:
        node = self._nodes.get((guards, blocked))
        if node is None:
            node = self._nodes[guards, blocked] = _Node()
            self._compiler.todo.append(lambda node=node: self._fill(node, guards, blocked))  # type: ignore[misc]
        return node


class _Scope(NamedTuple):
    """What surrounds a sequence of steps."""

    #: How its first step follows on what is before it; None = as the step says.
    head: Contiguity | None
    #: The ends of the loops of groups around it.
    untils: Tests


class _Compiler:
    """Makes nodes of steps, from the first to the last, and states of nodes."""

    def __init__(self, pattern: Pattern) -> None:
        self.tests: list[RecordTest] = []
        self.todo: list[Callable[[], None]] = []
        self._pattern = pattern
        self._numbers = {name: number for number, name in enumerate(pattern.names())}
        self._test_of: dict[int, int | None] = {}
        self._final = _Node()
        self._end = _Memo(self, self._fill_pending)
        entry = self._sequence(pattern.steps, 0, _Scope(None, ()), self._at_end)
        self._first = entry(_NO_GUARDS, None)
        while self.todo:
            self.todo.pop()()

    def iterative(self) -> list[bool]:
        """For each test, whether it looks at the partial match."""
        found: list[bool] = []
        for test in self.tests:
            others = [found[number] for number in (test.taken, test.unless) if number is not None]
            found.append(
                any(others) or any(isinstance(part.condition, IterativeCondition) for part in test.parts)
            )
        return found

    def caring(self) -> tuple[int, ...] | None:
        """The tests of which a record passes one, unless all runs pass over it.

        None if a strict step or one without condition sees each record, or a condition looks at the partial match.
        """
        steps = list(self._pattern.all_steps())
        strict = (Contiguity.STRICT, Contiguity.NOT_NEXT)
        for at, step in enumerate(steps):
            if (step.contiguity in strict and at) or (not step.conditions and step.group is None):
                return None
            if step.repetition is not None and step.repetition.contiguity is Contiguity.STRICT:
                return None
        if any(self.iterative()):
            return None
        return tuple(number for number, test in enumerate(self.tests) if test.parts)

    # ------------------------------------------------------------------ tests

    def _condition(self, step: Step) -> int | None:
        """The test of a step's conditions; None = any record."""
        if id(step) not in self._test_of:
            self._test_of[id(step)] = (
                self._add(RecordTest(tuple(step.conditions))) if step.conditions else None
            )
        return self._test_of[id(step)]

    def _until(self, repetition: Repetition | None) -> int | None:
        if repetition is None or repetition.until is None:
            return None
        if id(repetition) not in self._test_of:
            self._test_of[id(repetition)] = self._add(RecordTest((ConditionPart(False, repetition.until),)))
        return self._test_of[id(repetition)]

    def _add(self, test: RecordTest) -> int:
        self.tests.append(test)
        return len(self.tests) - 1

    def _always_false(self) -> Tests:
        """Tests that no record passes: the condition that every record fulfils does not hold."""
        if 0 not in self._test_of:
            self._test_of[0] = self._add(RecordTest())
        number = self._test_of[0]
        assert number is not None
        return ((number, False),)

    def _fails(self, test: int | None) -> Tests:
        """Records that do not fulfil a test."""
        return self._always_false() if test is None else ((test, False),)

    # ------------------------------------------------------------------ sequences

    def _sequence(self, steps: tuple[Step, ...], at: int, scope: _Scope, after: _Entry) -> _Entry:
        """What waits for the steps from `at` on; `after` follows behind the last one."""
        if at == len(steps):
            return after
        step = steps[at]
        rest = self._sequence(steps, at + 1, _Scope(None, scope.untils), after)
        if step.contiguity is Contiguity.NOT_FOLLOWED_BY:
            guard = _Guard(self._forbidden(step), step.within_previous_ms)
            return lambda guards, blocked: rest(guards | {guard}, blocked)
        if step.contiguity is Contiguity.NOT_NEXT:
            return _Memo(self, lambda *args: self._fill_not_next(step, rest, *args))
        following = steps[at + 1] if at + 1 < len(steps) else None
        if step.group is not None:
            return self._repeated_group(step, scope, rest, following)
        return _StepNodes(self, step, scope, rest, following).entry

    def _forbidden(self, step: Step) -> int:
        test = self._condition(step)
        if test is None:
            raise MalformedPatternError(
                f"{step.contiguity.value}({step}): without a condition it forbids each record, and nothing can match."
                " Call where behind it"
            )
        return test

    def _at_end(self, guards: _Guards, blocked: int | None) -> _Node:
        """The end of the pattern: it has matched, or waits until the time has passed without a forbidden record."""
        if not guards:
            return self._final
        if self._pattern.within_ms is None and all(guard.gap_ms is None for guard in guards):
            raise MalformedPatternError(
                "a pattern that ends with not_followed_by needs within: it matches when that time has passed"
            )
        return self._end(guards, blocked)

    def _fill_pending(self, node: _Node, guards: _Guards, blocked: int | None) -> None:
        node.label = "waits for its time to pass"
        node.is_pending = True
        node.gap_ms = min((guard.gap_ms for guard in guards if guard.gap_ms is not None), default=None)
        clear: Tests = tuple(sorted({(guard.test, False) for guard in guards}))
        node.ignores.append((clear + _not(blocked), node))
        self.add_stops(node, guards, blocked)

    def _fill_not_next(
        self, step: Step, rest: _Entry, node: _Node, guards: _Guards, blocked: int | None
    ) -> None:
        test = self._forbidden(step)
        node.label = f"looks at the record behind, which must not be {step}"
        self.add_stops(node, guards | {_Guard(test, None)}, blocked)
        tests = ((test, False), *_not(blocked))
        node.needs_record = True
        node.skips.append((tests, rest(guards, None)))

    def add_stops(self, node: _Node, guards: _Guards, blocked: int | None) -> None:
        """Adds the forbidden records to a node."""
        node.stops += [((test, True), *_not(blocked)) for test in sorted({guard.test for guard in guards})]

    def inner_guards(self, following: Step | None) -> _Guards:
        """What is forbidden between the records or runs of a step: each of them may be the last."""
        if following is None or following.contiguity is not Contiguity.NOT_FOLLOWED_BY:
            return _NO_GUARDS
        return frozenset({_Guard(self._forbidden(following), None)})

    def _repeated_group(self, step: Step, scope: _Scope, rest: _Entry, following: Step | None) -> _Entry:
        assert step.group is not None
        between = self.inner_guards(following)
        group, repetition = step.group, step.repetition or Repetition(1, 1)
        until = self._until(repetition)
        untils = scope.untils if until is None else (*scope.untils, (until, False))
        junctions: dict[int, _Entry] = {}

        def before(runs: int) -> _Entry:
            """What waits for a further run of the group, or for what follows, behind so many runs."""
            if repetition.maximum is None:
                runs = min(runs, repetition.minimum)
            if runs not in junctions:
                junctions[runs] = _Memo(self, lambda *args: fill(runs, *args))
            return junctions[runs]

        def fill(runs: int, node: _Node, guards: _Guards, blocked: int | None) -> None:
            if repetition.maximum is None or runs < repetition.maximum:
                head = repetition.contiguity if runs else scope.head or step.contiguity
                inner = self._sequence(group.steps, 0, _Scope(head, untils), before(runs + 1))
                node.skips.append(((), inner(guards | between if runs else guards, blocked)))
            if runs >= repetition.minimum or (not runs and step.is_optional):
                node.skips.append(((), rest(guards, blocked)))

        return before(0)

    @property
    def number_of(self) -> dict[str, int]:
        """The numbers of steps by name."""
        return self._numbers

    # ------------------------------------------------------------------ states

    def states(self) -> tuple[PatternState, ...]:
        """The states of all nodes that a partial match may stand in."""
        order = [self._first]
        numbers = {id(self._first): 0}
        reached = [_Reached(self._first, self._final)]
        reached[0].ignores.clear()
        for found in reached:
            for target in found.targets():
                if id(target) not in numbers:
                    numbers[id(target)] = len(order)
                    order.append(target)
                    reached.append(_Reached(target, self._final))
        by_node = {id(node): found for node, found in zip(order, reached, strict=True)}
        return tuple(_state(found, numbers, by_node, is_first=not at) for at, found in enumerate(reached))


class _StepNodes:
    """The nodes of a step that takes records: `entry` waits for its first one."""

    def __init__(
        self, compiler: _Compiler, step: Step, scope: _Scope, rest: _Entry, following: Step | None
    ) -> None:
        self._compiler = compiler
        self._step = step
        self._scope = scope
        self._rest = rest
        self._repetition = step.repetition or Repetition(1, 1)
        assert step.name is not None
        self._number = compiler.number_of[step.name]
        self._condition = compiler._condition(step)
        self._until = compiler._until(step.repetition)
        self._inner_guards = compiler.inner_guards(following)
        greedy = self._repetition.is_greedy and self._repetition.minimum != self._repetition.maximum
        #: The test of records that may not come behind a greedy step.
        self._greedy = self._greedy_test() if greedy else None
        self._later: dict[tuple[int, bool], _Memo] = {}
        self.entry: _Entry = _Memo(compiler, self._fill_first)

    def _greedy_test(self) -> int:
        return self._compiler._add(RecordTest((), self._condition, self._until))

    def _fill_first(self, node: _Node, guards: _Guards, blocked: int | None) -> None:
        """Waits for the first record of the step."""
        contiguity = self._scope.head or self._step.contiguity
        self._fill(node, 0, contiguity, guards, blocked)
        if not self._step.is_optional:
            self._ignore(node, node, contiguity, self._scope.untils + _not(blocked))
            return
        # A partial match that has passed over a record for this step does not leave the step out any more.
        stays = _Node()
        self._fill(stays, 0, contiguity, guards, None)
        self._ignore(stays, stays, contiguity, self._scope.untils)
        self._ignore(node, stays, contiguity, self._scope.untils + _not(blocked))
        self._leave(node, guards)

    def _fill_later(self, taken: int, may_leave: bool, node: _Node) -> None:
        """Waits for a further record of the step."""
        contiguity, inner = self._repetition.contiguity, self._inner_guards
        self._fill(node, taken, contiguity, inner, None)
        untils = self._scope.untils + _not(self._until)
        if not may_leave:
            self._ignore(node, node, contiguity, untils)
            return
        self._ignore(node, self._behind(taken, may_leave=False), contiguity, untils)
        self._leave(node, _NO_GUARDS)

    def _behind(self, taken: int, *, may_leave: bool = True) -> _Node:
        """The node behind so many records of the step."""
        repetition = self._repetition
        if taken == repetition.maximum:
            return self._rest(_NO_GUARDS, self._greedy)
        taken = taken if repetition.maximum is not None else min(taken, repetition.minimum)
        may_leave = may_leave and taken >= repetition.minimum
        if (taken, may_leave) not in self._later:
            self._later[taken, may_leave] = _Memo(
                self._compiler, lambda node, _guards, _blocked: self._fill_later(taken, may_leave, node)
            )
        return self._later[taken, may_leave](_NO_GUARDS, None)

    def _fill(
        self, node: _Node, taken: int, contiguity: Contiguity, guards: _Guards, blocked: int | None
    ) -> None:
        """Label, time limit, forbidden records and the record that the step takes."""
        step, repetition = self._step, self._repetition
        node.label = f"waits for {step}" + (f" behind {taken} of them" if taken else "")
        node.gap_ms = step.within_previous_ms
        if taken and repetition.window_ms is not None:
            node.gap_ms = min(repetition.window_ms, node.gap_ms or repetition.window_ms)
        self._compiler.add_stops(node, guards, blocked)
        fulfils: Tests = () if self._condition is None else ((self._condition, True),)
        tests = fulfils + _not(self._until) + self._scope.untils + _not(blocked)
        node.takes.append((tests, self._behind(taken + 1), self._number))

    def _ignore(self, node: _Node, target: _Node, contiguity: Contiguity, tests: Tests) -> None:
        """Adds the records that a partial match passes over."""
        if contiguity is Contiguity.RELAXED:
            node.ignores.append((self._compiler._fails(self._condition) + tests, target))
        elif contiguity is Contiguity.ANY:
            node.ignores.append((tests, target))

    def _leave(self, node: _Node, guards: _Guards) -> None:
        """Adds the way on without a further record of the step."""
        if self._greedy is None or self._until is None:
            node.skips.append(((), self._rest(guards, self._greedy)))
        else:
            # The record that ends the loop frees what follows.
            node.skips.append((((self._until, True),), self._rest(guards, None)))
            node.skips.append((((self._until, False),), self._rest(guards, self._greedy)))


class _Reached:
    """All edges of a node and of the nodes that need no record to be reached from it."""

    def __init__(self, node: _Node, final: _Node) -> None:
        self.node = node
        self._final = final
        self.takes: dict[tuple[Tests, int, int, int | None], _Node] = {}
        self.ignores: dict[tuple[Tests, int, int | None], _Node] = {}
        self.stops: dict[Tests, None] = {}
        self.labels: dict[str, None] = {}
        self.accepts = False
        #: True if it waits for its time to pass.
        self.is_pending = False
        #: A node that does so beside this one.
        self.waits_beside: _Node | None = None
        self._gaps: list[int | None] = []
        self._seen: set[tuple[int, Tests]] = set()
        self._visit(node, (), shown=False)

    def _visit(self, node: _Node, tests: Tests, *, shown: bool) -> None:
        """Adds the edges of a node. `shown`: a record that belongs to no step has to come first."""
        if node is self._final:
            if shown:
                self.ignores.setdefault((tests, id(node), None), node)
                self._gaps.append(None)
            else:
                self.accepts = True
            return
        if (id(node), tests) in self._seen:
            return
        self._seen.add((id(node), tests))
        self.stops.update({joined: None for stop in node.stops if (joined := _join(tests, stop)) is not None})
        if node.label:
            self.labels[node.label] = None
        if node.is_pending and node is not self.node and not tests:
            self.waits_beside = node
            return
        if node.is_pending and not shown:
            self.is_pending = True
        if node.is_pending or node.takes or node.ignores:
            self._gaps.append(node.gap_ms)
        for needed, target, step in node.takes:
            joined = _join(tests, needed)
            if joined is not None:
                self.takes.setdefault((joined, step, id(target), node.gap_ms), target)
        for needed, target in node.ignores:
            joined = _join(tests, needed)
            if joined is not None:
                self.ignores.setdefault((joined, id(target), node.gap_ms), target)
        for needed, target in node.skips:
            joined = _join(tests, needed)
            if joined is not None:
                self._visit(target, joined, shown=shown or node.needs_record)

    @property
    def gap_ms(self) -> int | None:
        """The longest of the time limits."""
        known = [gap for gap in self._gaps if gap is not None]
        return max(known) if known and len(known) == len(self._gaps) else None

    @property
    def goes_on(self) -> bool:
        """False if no record can follow, and no time."""
        return bool(self.takes or self.ignores or self.is_pending)

    def targets(self) -> list[_Node]:
        """The nodes behind its edges."""
        found = [
            target for target in (*self.takes.values(), *self.ignores.values()) if target is not self._final
        ]
        return [*found, *([] if self.waits_beside is None else [self.waits_beside])]


def _state(
    found: _Reached, numbers: dict[int, int], by_node: dict[int, _Reached], *, is_first: bool
) -> PatternState:
    """The state of a node. The first one ignores no record: a match begins with the record that it takes."""

    def edge(action: EdgeAction, tests: Tests, target: _Node, step: int, gap_ms: int | None) -> Edge:
        behind = by_node.get(id(target))
        if behind is None:
            return Edge(action, tests, NOWHERE, step, gap_ms, accepts=True)
        beside = behind.waits_beside
        return Edge(
            action,
            tests,
            numbers[id(target)] if behind.goes_on else NOWHERE,
            step,
            gap_ms,
            # A record that is passed over makes no match of what was none before it.
            accepts=behind.accepts and action is EdgeAction.TAKE,
            waits_in=numbers[id(beside)] if beside is not None and action is EdgeAction.TAKE else NOWHERE,
        )

    edges = [Edge(EdgeAction.STOP, tests, NOWHERE) for tests in found.stops]
    for (tests, step, _, gap), target in found.takes.items():
        edges.append(edge(EdgeAction.TAKE, tests, target, step, None if is_first else gap))
    for (tests, _, gap), target in found.ignores.items():
        edges.append(edge(EdgeAction.IGNORE, tests, target, -1, gap))
    label = " or ".join(found.labels)
    return PatternState(label, tuple(edges), found.is_pending, None if is_first else found.gap_ms)


def _not(test: int | None) -> Tests:
    return () if test is None else ((test, False),)


def _join(first: Tests, second: Tests) -> Tests | None:
    """All tests of both; None if they contradict each other."""
    joined = dict(first)
    for test, needed in second:
        if joined.setdefault(test, needed) is not needed:
            return None
    return tuple(joined.items())
