"""Generates code that computes the results of pairs, where the ProcessJoinFunction is a generator of one value.

Owner: the task thread while it compiles. PairCalls or the code of their join calls other functions. Must not know which
rows are a pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_calls import computes_only_result, generate_only_result, generate_told
from yarrow.container.operators.base import Emit
from yarrow.container.operators.join.pair_calls import PairCalls
from yarrow.container.state.backend import KeyedStateBackend

#: The place of the context among the arguments of the function.
_CONTEXT = 2


class JoinedRow(NamedTuple):
    """The variables of a row: key, value and time; and whether it is the left one of a pair."""

    #: The state whose current key an error names.
    state: KeyedStateBackend
    key: str
    value: str
    time: str
    is_left: bool

    def pair(self, other: str) -> tuple[str, str]:
        """The variables of the left and of the right row of a pair with the row in a variable."""
        return (self.value, other) if self.is_left else (other, self.value)


def computes_pairs(code: CodeWriter, pairs: PairCalls) -> bool:
    """True if the loop may compute the result of a pair: one value, for which the function asks no context."""
    return computes_only_result(code, pairs.process, _CONTEXT + 1, _CONTEXT)


def generate_result(code: CodeWriter, pairs: PairCalls, row: JoinedRow, other: str) -> str:
    """Generates code that computes the result of a pair, see computes_pairs; returns its variable."""
    made = code.fresh("made")
    # The context is an argument of the call that gives an error its traceback.
    context = code.bind("context", pairs.context)
    generate_only_result(code, pairs.process, [*row.pair(other), context], made)
    return made


@contextmanager
def generate_failures(code: CodeWriter, pairs: PairCalls, row: JoinedRow, other: str) -> Iterator[None]:
    """Generates that errors of what is written inside name the pair of the row and the one in `other`."""
    error = code.fresh("e")
    with code.block("try:"):
        yield
    with code.block(f"except Exception as {error}:"):
        generate_told(code, error)
        # The loop need not have set it.
        code.line(f"{code.bind('state', row.state)}.current_key = {row.key}")
        code.line(
            f"raise {code.bind('failure', pairs.failure)}({', '.join(row.pair(other))}, {error}) from {error}"
        )


def generate_timed_results(code: CodeWriter, pairs: PairCalls, row: JoinedRow, partners: str) -> str:
    """Generates code for the results of a row with entries (time, -, row), each with its later time.

    Returns an expression that gives them once.
    """
    if not computes_pairs(code, pairs):
        calls = code.bind("pairs", pairs.of_left if row.is_left else pairs.of_right)
        return f"{calls}({row.value}, {row.time}, {partners})"
    time, other, results = code.fresh("t"), code.fresh("other"), code.fresh("results")
    code.line(f"{results} = []")
    each = code.block(f"for {time}, _, {other} in {partners}:")
    with generate_failures(code, pairs, row, other), each:
        made = generate_result(code, pairs, row, other)
        code.line(f"{results}.append(({made}, {time} if {time} > {row.time} else {row.time}))")
    return results


def generate_emitted(code: CodeWriter, results: str, emit: Emit) -> None:
    """Generates code that emits the results of an expression, which stand with their times."""
    result, stamp = code.fresh("v"), code.fresh("t")
    with code.block(f"for {result}, {stamp} in {results}:"):
        emit(result, stamp)
