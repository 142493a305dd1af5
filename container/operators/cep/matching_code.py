"""Generates the loop that runs rows of many keys through a pattern, in order of time.

Owner: the task thread while it compiles, then the code. A key without partial matches is tested against the first
condition alone. Where one test tells what a row does in each state, the loop moves partial matches itself. Other
patterns and rare cases go through `OrderedMatching.take`. The loop does what `PatternMatcher` does, row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple, Protocol

from yarrow.cep.partial_matches import LEAST_SWEEP, PartialMatches, matched
from yarrow.cep.pattern import ConditionPart
from yarrow.cep.pattern_table import NOWHERE, Edge, EdgeAction, PatternTable
from yarrow.cep.record_moves import Followed, OneTest
from yarrow.container.codegen.code_writer import CodeWriter, CompiledCode
from yarrow.container.codegen.user_calls import generate_told
from yarrow.container.operators.cep.condition_code import generate_if
from yarrow.container.state.value_table import MISSING, ValueTable


class LoopRows(Protocol):
    """A form of rows: it writes the loop over them and the tests of conditions."""

    #: The rows of one call, in order of time.
    parameter: str

    def loop(self, code: CodeWriter) -> AbstractContextManager[None]:
        """Generates the loop over the rows; inside, `time`, `key` (canonical) and `row` are those of one row."""
        ...

    def condition(self, code: CodeWriter, parts: Sequence[ConditionPart]) -> AbstractContextManager[None]:
        """Generates `if` with the conditions of a test; what is written inside belongs to the block."""
        ...


class RowsInTurn:
    """Rows as TimeOrderedRows gives them: times with keys and rows in turn."""

    parameter = "pieces"

    @contextmanager
    def loop(self, code: CodeWriter) -> Iterator[None]:
        """See LoopRows."""
        with code.block("for time, entries in pieces:"):
            code.line("places = iter(entries)")
            with code.block("for key, row in zip(places, places):"):
                yield

    def condition(self, code: CodeWriter, parts: Sequence[ConditionPart]) -> AbstractContextManager[None]:
        """See LoopRows."""
        return generate_if(code, parts, "row")


class MatchingLoop(NamedTuple):
    """The table and the functions that the loop uses."""

    #: The partial matches of all keys.
    table: ValueTable
    #: Runs a row (key, row, time) in the general way; gives (key, result) pairs.
    take: Callable[[Any, Any, int], Sequence[Any]]
    #: Sets the timer of a key whose first partial match began: (key, time). None = no time limit.
    begin: Callable[[Any, int], None] | None
    #: Removes the partial matches of a key.
    remove: Callable[[Any], None]
    #: Deletes the timer of a key.
    disarm: Callable[[Any], None]
    #: The error of a condition: (key, row, error).
    failure: Callable[[Any, Any, Exception], Exception]


def moves_alone(moves: Sequence[OneTest | None] | None) -> bool:
    """True if the loop moves all partial matches itself, and never calls `take`."""
    if moves is None or moves[0] is None:
        return False
    return _only_beginning(moves[0]) is not None and all(each is not None for each in moves)


def generate_matching(
    code: CodeWriter,
    rows: LoopRows,
    loop: MatchingLoop,
    table: PatternTable,
    moves: Sequence[OneTest | None] | None,
) -> CompiledCode:
    """The function that runs rows, and returns pairs of key and result.

    No time limit of a whole match passes between the first row and the last one.
    `moves`: see `PatternMatcher.moves_by_one_test`; None = each row takes the general way.
    """
    code.at_start("found = []")
    code.at_start(f"shard = whole = {code.bind('table', loop.table)}.whole")
    with code.block("try:"), rows.loop(code):
        # A match that also begins where the test fails begins in the general way.
        if moves is None or moves[0] is None or moves[0].fails:
            code.line(f"found += {code.bind('take', loop.take)}(key, row, time)")
        else:
            _generate_row(code, rows, loop, table, moves)
    with code.block("except Exception as error:"):
        code.line("raised = error")
        generate_told(code, "raised")
        code.line(f"raise {code.bind('failure', loop.failure)}(key, row, raised) from raised")
    code.line("return found")
    return code.compile("match_rows", rows.parameter)


def _generate_row(
    code: CodeWriter,
    rows: LoopRows,
    loop: MatchingLoop,
    table: PatternTable,
    moves: Sequence[OneTest | None],
) -> None:
    """Generates what a row does to the partial matches of its key."""
    first = moves[0]
    assert first is not None
    parts = table.tests[first.test].parts
    begins = _only_beginning(first) if moves_alone(moves) else None
    _generate_look(code, loop)
    with code.block("if matches is None:"):
        with rows.condition(code, parts):
            if begins is None:
                code.line(f"found += {code.bind('take', loop.take)}(key, row, time)")
            else:
                code.line(
                    f"shard[key] = [(time, row)], [({begins.step}, 0, -1)], [({begins.target}, 0, 0)], [], [0]"
                )
                if loop.begin is not None:
                    code.line(f"{code.bind('begin', loop.begin)}(key, time)")
        code.line("continue")
    if begins is None:
        code.line(f"found += {code.bind('take', loop.take)}(key, row, time)")
        return
    code.line("records, cells, runs, _, kept = matches")
    states = {state: each for state, each in enumerate(moves) if state and each is not None}
    _generate_results(code, rows, table, states)
    code.line("position = len(records)")
    with code.block("if moves:"):
        _generate_moves(code, states)
    with rows.condition(code, parts):
        code.line(f"runs.append(({begins.target}, len(cells), position))")
        code.line(f"cells.append(({begins.step}, position, -1))")
    with code.block("if cells[-1][1] == position:"):
        code.line("records.append((time, row))")
    _generate_end(code, loop, table)


def _only_beginning(first: OneTest) -> Edge | None:
    """The edge by which each match begins; None if there are several, or if it is the only one of a match."""
    edges = first.holds or ()
    if first.fails or len(edges) != 1:
        return None
    (edge,) = edges
    return None if edge.accepts or edge.target == NOWHERE else edge


def _generate_look(code: CodeWriter, loop: MatchingLoop) -> None:
    """Generates the look for the partial matches of a key; None if it has none."""
    with code.block("if whole is not None:"):
        code.line("matches = whole.get(key)")
    with code.block("else:"):
        code.line(f"key, shard, matches = {code.bind('find', loop.table.find)}(key)")
        with code.block(f"if matches is {code.bind_as('MISSING', MISSING)}:"):
            code.line("matches = None")
        with code.block("else:"):
            # Found in what a snapshot holds, it is a copy.
            code.line("shard[key] = matches")


def _generate_results(
    code: CodeWriter, rows: LoopRows, table: PatternTable, states: dict[int, OneTest]
) -> None:
    """Generates the tests of states in which a partial match is, each once; `moves` tells whether any changes."""
    names = [f"holds{state}" for state in states]
    code.line(f"{' = '.join(names)} = None")
    code.line("moves = False")
    with code.block("for run in runs:"):
        code.line("state = run[0]")
        for at, (state, each) in enumerate(states.items()):
            unknown = f"holds{state} is None"
            with code.block(f"{'elif' if at else 'if'} state == {state}:"), code.block(f"if {unknown}:"):
                code.line(f"holds{state} = False")
                if each.fails is not None:
                    code.line("moves = True")
                with rows.condition(code, table.tests[each.test].parts):
                    code.line(f"holds{state} = True")
                    if each.holds is not None and each.fails is None:
                        code.line("moves = True")


def _generate_moves(code: CodeWriter, states: dict[int, OneTest]) -> None:
    """Generates what becomes of the partial matches of a key; `done` gets the matches."""
    code.line("before = runs[:]")
    code.line("runs.clear()")
    code.line("done = []")
    with code.block("for run in before:"):
        code.line("state, cell, start = run")
        for at, (state, each) in enumerate(states.items()):
            with code.block(f"{'elif' if at else 'if'} state == {state}:"):
                with code.block(f"if holds{state}:"):
                    _generate_followed(code, each.holds)
                with code.block("else:"):
                    _generate_followed(code, each.fails)


def _generate_followed(code: CodeWriter, followed: Followed) -> None:
    """Generates how a partial match follows edges."""
    if followed is None:
        code.line("runs.append(run)")
        return
    for edge in followed:
        behind = "cell"
        if edge.action is EdgeAction.TAKE:
            if edge.target == NOWHERE:
                # The row is the last one of a match, and no other has it in its past.
                if edge.accepts:
                    code.line(f"done.append((start, cell, {edge.step}))")
                continue
            behind = "len(cells) - 1"
            code.line(f"cells.append(({edge.step}, position, cell))")
        if edge.target != NOWHERE:
            code.line(f"runs.append(({edge.target}, {behind}, start))")
        if edge.accepts:
            code.line(f"done.append((start, {behind}, -1))")


def _generate_end(code: CodeWriter, loop: MatchingLoop, table: PatternTable) -> None:
    """Generates the matches that leave, and what is kept of a key."""
    names = code.bind("steps", table.steps)
    with code.block("if moves:"):
        with code.block("if len(done) > 1:"):
            code.line(f"done.sort(key={code.bind('began', _began)})")
        with code.block("for _, cell, step in done:"):
            match = f"{code.bind('matched', matched)}(records, cells, cell, {names})"
            code.line(f"match = {match}")
            with code.block("if step >= 0:"):
                code.line(f"name = {names}[step]")
                with code.block("if name in match:"):
                    code.line("match[name].append(row)")
                with code.block("else:"):
                    code.line("match[name] = [row]")
            code.line("found.append((key, (match, time, False)))")
        with code.block("if not runs:"):
            with code.block("if whole is not None:"):
                code.line("del whole[key]")
            with code.block("else:"):
                code.line(f"{code.bind('remove', loop.remove)}(key)")
            if loop.begin is not None:
                code.line(f"{code.bind('disarm', loop.disarm)}(key)")
            code.line("continue")
    # Few keys come to the second look.
    with code.block(f"if len(cells) >= {LEAST_SWEEP} and len(cells) >= 2 * kept[0] + {LEAST_SWEEP}:"):
        code.line(f"{code.bind('sweep', _sweep)}(matches)")


def _sweep(lists: tuple[Any, ...]) -> None:
    PartialMatches._make(lists).sweep()


def _began(done: tuple[int, int, int]) -> int:
    return done[0]
