"""Generates code that asks the conditions of a pattern about a record: small ones are computed instead of called.

Owner: the task thread while it compiles. Only for conditions that look at the record alone. Conditions are asked in
their order, each of them only if the former ones leave the result open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from yarrow.cep.conditions import SimpleCondition, call_of
from yarrow.cep.pattern import ConditionPart
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_calls import generate_call, generate_condition


def generate_result(code: CodeWriter, parts: Sequence[ConditionPart], record: str, result: str) -> None:
    """Generates code that gives the variable `result` what the conditions of a test say of a record."""
    generate_joined(code, parts, result, lambda part: generate_part(code, part, record, result))


def generate_part(code: CodeWriter, part: ConditionPart, record: str, result: str) -> None:
    """Generates code that gives the variable `result` what one condition says of a record."""
    assert isinstance(part.condition, SimpleCondition)
    generate_call(code, "condition", call_of(part.condition), [record], result)


def generate_joined(
    code: CodeWriter, parts: Sequence[ConditionPart], result: str, generate: Callable[[ConditionPart], None]
) -> None:
    """Generates the conditions of a test in their order; `generate` writes one, which sets the variable `result`."""
    generate(parts[0])
    for part in parts[1:]:
        with code.block(f"if {'not ' if part.joined_by_or else ''}{result}:"):
            generate(part)


@contextmanager
def generate_if(code: CodeWriter, parts: Sequence[ConditionPart], record: str) -> Iterator[None]:
    """Generates `if` with the conditions of a test; what is written inside belongs to the block."""
    first = parts[0].condition
    if len(parts) == 1 and isinstance(first, SimpleCondition):
        with generate_condition(code, "condition", call_of(first), [record]):
            yield
        return
    result = code.fresh("r")
    generate_result(code, parts, record, result)
    with code.block(f"if {result}:"):
        yield
