"""ControlFlow: finds the conditional expressions, `and` and `or` behind the jumps of a small function.

Owner: none (an object of one call). It knows forward jumps alone, and refuses others with NotInlined. proofs.py checks
what it finds.
"""

from __future__ import annotations

import ast
from types import CodeType
from typing import Final, NamedTuple

from yarrow.container.codegen.inlining.formulas import Formula, NotInlined, checked_constant
from yarrow.container.codegen.inlining.instructions import CodeStep, steps_of
from yarrow.container.codegen.inlining.stack_machine import Stack, StackMachine, compared, negated

#: Steps that a function may take to be read. Larger ones gain little from the saved call.
_MOST_STEPS: Final = 400
_TESTS: Final = frozenset(
    {"POP_JUMP_IF_FALSE", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE"}
)
#: RETURN_GENERATOR and POP_TOP, with which each generator begins.
_GENERATOR_STEPS: Final = 2
_SHORT: Final = {"JUMP_IF_FALSE_OR_POP": ast.And, "JUMP_IF_TRUE_OR_POP": ast.Or}


class _Test(NamedTuple):
    """A condition and the places where the function goes on."""

    condition: ast.expr
    yes: int
    no: int
    #: The place behind the last jump: `yes` or `no`.
    next: int


class _Arm(NamedTuple):
    """The value that a stretch of steps leaves, and the place of the next step; None = the function returns."""

    value: ast.expr
    end: int | None


class ControlFlow:
    """Reads one function."""

    def __init__(self, code: CodeType, parameters: tuple[str, ...]) -> None:
        try:
            self._steps = steps_of(code)
        except LookupError as error:
            raise NotInlined(str(error)) from error
        self._parameters = parameters
        self._machine = StackMachine(parameters)
        self._left = _MOST_STEPS
        self._inside = 0

    def formula(self) -> Formula:
        """The formula of the function. Raises NotInlined."""
        if len(self._steps) > _MOST_STEPS:
            raise NotInlined("it is too long")
        if self._steps[0].name == "RETURN_GENERATOR":
            return self._of_generator()
        arm = self._run(0, [], None)
        if arm.end is not None:
            raise NotInlined("it does not return")
        return Formula(self._parameters, tuple(self._machine.assignments), arm.value)

    def _of_generator(self) -> Formula:
        """The formula of a generator that yields once. The proof compares what follows the value."""
        end = next((at for at, step in enumerate(self._steps) if step.name == "YIELD_VALUE"), 0)
        value = self._run(_GENERATOR_STEPS, [], end).value
        return Formula(self._parameters, tuple(self._machine.assignments), value, is_yielded=True)

    def _run(self, at: int, stack: Stack, stop: int | None) -> _Arm:
        """Runs steps until one returns or jumps forward, or until the place `stop`."""
        while at != stop:
            step = self._step(at)
            if step.name in {"RETURN_VALUE", "RETURN_CONST"}:
                value = checked_constant(step.value) if step.name == "RETURN_CONST" else _top(stack)
                if stack:
                    raise NotInlined("it returns from within a loop")
                return _Arm(value, None)
            if step.name == "JUMP_FORWARD" and step.target == self._behind_comparison(at + 1):
                at = step.target
                continue
            if step.name == "JUMP_FORWARD":
                return _Arm(_top(stack), step.target)
            if step.name in _TESTS and self._steps[step.target - 1].name in _SHORT:
                stack.append(self._group(at, stack, step.target - 1))
                at = step.target - 1
            elif step.name in _TESTS:
                arm = self._choice(self._folded(self._test(at, stack), stack), stack, stop)
                if arm.end is None:
                    return arm
                stack.append(arm.value)
                at = arm.end
            elif step.name in _SHORT:
                stack.append(self._short(step, at, stack))
                at = step.target
            else:
                at = self._plain(at, stack)
        return _Arm(_top(stack), stop)

    def _behind_comparison(self, at: int) -> int:
        """The place behind the steps that let go of `b` where `a` of `a < b < c` is not less; -1 = there are none."""
        is_one = [step.name for step in self._steps[at : at + 2]] == ["SWAP", "POP_TOP"]
        return at + 2 if is_one else -1

    def _behind_test(self, at: int) -> int:
        """The place where a function goes on that has come to `at`, which may lead past the end of `a < b < c`."""
        names = [step.name for step in self._steps[at : at + 2]]
        return self._steps[at].target if names == ["JUMP_FORWARD", "POP_TOP"] else at

    def _step(self, at: int) -> CodeStep:
        self._left -= 1
        if self._left < 0 or not 0 <= at < len(self._steps):
            raise NotInlined("it is too long")
        return self._steps[at]

    def _plain(self, at: int, stack: Stack) -> int:
        assigned = len(self._machine.assignments)
        following = self._machine.take(self._steps, at, stack)
        if self._inside and len(self._machine.assignments) > assigned:
            raise NotInlined("it assigns under a condition")
        return following

    def _arm(self, at: int, stack: Stack, stop: int | None) -> _Arm:
        self._inside += 1
        arm = self._run(at, stack.copy(), stop)
        self._inside -= 1
        return arm

    def _short(self, step: CodeStep, at: int, stack: Stack) -> ast.expr:
        """`left and right`, or `left or right`."""
        left, kind = _top(stack), _SHORT[step.name]
        arm = self._arm(at + 1, [], step.target)
        # The compiler may return at once, where the function would go on with a return.
        returns = arm.end is None and self._steps[step.target].name == "RETURN_VALUE"
        if arm.end != step.target and not returns:
            raise NotInlined("it jumps out of a condition")
        return _combined(kind, left, arm.value)

    def _group(self, at: int, stack: Stack, end: int) -> ast.expr:
        """`left or right` of `(left or right) and ...`, or `left and right` of `left and right or ...`."""
        test = self._test(at, stack)
        arm = self._arm(at + 1, [], end)
        if arm.end != end:
            raise NotInlined("it jumps out of a condition")
        return _combined(ast.And if test.next == test.yes else ast.Or, test.condition, arm.value)

    def _choice(self, test: _Test, stack: Stack, stop: int | None) -> _Arm:
        """The two values behind a condition, in the order in which they stand."""
        condition, other = test.condition, test.no
        if test.next == test.no:
            condition, other = negated(condition), test.yes
        # The arms do not see what lies below on the stack.
        first = self._arm(test.next, [], None)
        if first.end is None:
            second = self._arm(other, [], None)
            if stack or second.end is not None:
                raise NotInlined("it returns under a condition")
            return _Arm(ast.IfExp(test=condition, body=first.value, orelse=second.value), None)
        second = self._arm(other, [], first.end)
        if second.end != first.end:
            raise NotInlined("its conditions cross")
        return _Arm(ast.IfExp(test=condition, body=first.value, orelse=second.value), first.end)

    # ------------------------------------------------------------------ conditions of several parts

    def _test(self, at: int, stack: Stack) -> _Test:
        step, condition = self._step(at), _top(stack)
        if step.name in {"POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE"}:
            condition = compared(condition, ast.Is(), ast.Constant(value=None))
        following = self._behind_test(at + 1)
        if step.name in {"POP_JUMP_IF_FALSE", "POP_JUMP_IF_NOT_NONE"}:
            return _Test(condition, following, step.target, following)
        return _Test(condition, step.target, following, following)

    def _folded(self, test: _Test, stack: Stack) -> _Test:
        """The test with those that follow and share a place with it."""
        while (follower := self._follower(test.next)) is not None:
            joined = _joined(test, follower) or _joined(test, self._folded(follower, []))
            if joined is None:
                break
            test = joined
        return test

    def _follower(self, at: int) -> _Test | None:
        """The test that begins at a place; None if another thing does."""
        stack: Stack = []
        left = self._left
        try:
            while (step := self._step(at)).name not in _TESTS:
                if step.name in {"RETURN_VALUE", "RETURN_CONST", "JUMP_FORWARD", *_SHORT}:
                    return None
                if step.name in {"STORE_FAST", "UNPACK_SEQUENCE"}:
                    return None
                at = self._machine.take(self._steps, at, stack)
            return self._test(at, stack) if len(stack) == 1 else None
        finally:
            self._left = left - 1


def _top(stack: Stack) -> ast.expr:
    if not stack:
        raise NotInlined("its instructions have another order than expected")
    return stack.pop()


def _joined(test: _Test, follower: _Test) -> _Test | None:
    """Two tests as one, if one place of the first is one of the second; None otherwise."""
    if test.next == test.yes:
        condition, other = test.condition, test.no
        opposite = negated(condition)
    else:
        # Seen from the place behind the jump, the condition is the opposite.
        opposite, other = test.condition, test.yes
        condition = negated(opposite)
    if other == follower.no:
        both = _combined(ast.And, condition, follower.condition)
    elif other == follower.yes:
        both = _combined(ast.Or, opposite, follower.condition)
    else:
        return None
    return _Test(both, follower.yes, follower.no, follower.next)


def _combined(kind: type[ast.boolop], left: ast.expr, right: ast.expr) -> ast.expr:
    """`left and right`, or `left or right`; several in a row are one."""
    parts: list[ast.expr] = []
    for value in (left, right):
        parts += value.values if isinstance(value, ast.BoolOp) and isinstance(value.op, kind) else [value]
    return ast.BoolOp(op=kind(), values=parts)
