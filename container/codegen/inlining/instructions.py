"""Instructions: the byte code of a small function as one list, in one form for all versions of Python.

Owner: none (functions without state). Must not know what instructions mean to a stack.
"""

from __future__ import annotations

import dis
from types import CodeType
from typing import Any, Final, NamedTuple

#: Instructions without a meaning of their own.
_SILENT: Final = frozenset(
    {"RESUME", "PRECALL", "NOP", "CACHE", "EXTENDED_ARG", "COPY_FREE_VARS", "TO_BOOL", "NOT_TAKEN"}
)
#: Two instructions in one, for local variables.
_PAIRS: Final = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
#: The jump that ends `x and ...` or `x or ...`, by the jump that newer versions write instead.
_SHORT_JUMPS: Final = {
    "POP_JUMP_IF_FALSE": "JUMP_IF_FALSE_OR_POP",
    "POP_JUMP_IF_TRUE": "JUMP_IF_TRUE_OR_POP",
}


class CodeStep(NamedTuple):
    """One instruction."""

    name: str
    argument: int
    #: The constant, the name or the text of the operator that `argument` stands for.
    value: Any = None
    #: The place of the step that a jump leads to.
    target: int = -1


def steps_of(code: CodeType) -> list[CodeStep]:
    """The steps of a function. Raises LookupError if a jump leads back, or between two steps."""
    found: list[tuple[int, CodeStep, int]] = []
    for instruction in dis.get_instructions(code):
        name, jumps = instruction.opname, instruction.opcode in _JUMPS
        if name in _SILENT:
            continue
        value = instruction.argrepr if name in {"BINARY_OP", "COMPARE_OP"} else instruction.argval
        if name == "COMPARE_OP":
            value = str(value).removeprefix("bool(").removesuffix(")")
        to = instruction.argval if jumps else -1
        for part, of_part in zip(_PAIRS.get(name, (name,)), _values(name, value), strict=True):
            step = CodeStep(part.replace("JUMP_FORWARD_IF", "JUMP_IF"), instruction.arg or 0, of_part)
            found.append((instruction.offset, step, to))
    return _with_targets(_with_short_jumps(found))


_JUMPS: Final = frozenset({*dis.hasjrel, *dis.hasjabs})


def _values(name: str, value: Any) -> tuple[Any, ...]:
    return tuple(value) if name in _PAIRS else (value,)


def _with_short_jumps(found: list[tuple[int, CodeStep, int]]) -> list[tuple[int, CodeStep, int]]:
    """Writes `copy, jump, drop` as the one jump of older versions."""
    short: list[tuple[int, CodeStep, int]] = []
    at = 0
    while at < len(found):
        names = [step.name for _, step, _ in found[at : at + 3]]
        if len(names) == 3 and names[::2] == ["COPY", "POP_TOP"] and names[1] in _SHORT_JUMPS:
            step = CodeStep(_SHORT_JUMPS[names[1]], 0)
            short.append((found[at][0], step, found[at + 1][2]))
            at += 3
        else:
            short.append(found[at])
            at += 1
    return short


def _with_targets(found: list[tuple[int, CodeStep, int]]) -> list[CodeStep]:
    offsets = [offset for offset, _, _ in found]
    steps = []
    for at, (_, step, to) in enumerate(found):
        if to < 0:
            steps.append(step)
            continue
        target = next((i for i, offset in enumerate(offsets) if offset >= to), -1)
        if target <= at:
            raise LookupError(f"{step.name} leads back")
        steps.append(step._replace(target=target))
    return steps
