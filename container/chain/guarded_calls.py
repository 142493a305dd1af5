"""GuardedCall: code that calls an operator for one row and leaves the row out if the operator fails, by `on_error`.

Owner: the task thread while it compiles. Results leave only when the operator has finished the row, so that a failing
row sends nothing on. Operators without `on_error` never come here, and their code is as without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from yarrow.common.typeinfo import TypeInformation
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.freezing import generate_fixed, needs_fixing
from yarrow.container.operators.base import Emit
from yarrow.container.operators.failed_records import FailedRecords
from yarrow.runtime.data.errors import UncopyableValueError


class GuardedCall(NamedTuple):
    """What is known of an operator that leaves out failing rows, for the rows of one input."""

    failed: FailedRecords
    input_index: int
    #: A row gives itself, or nothing.
    passes_row: bool
    #: The declared type of all results; None = undeclared, or results of side outputs are among them.
    result_type: TypeInformation | None
    object_reuse: bool

    @property
    def gives_one(self) -> bool:
        """Each row gives exactly one result."""
        return self.failed.of_one_to_one

    def generate(
        self,
        code: CodeWriter,
        value: str,
        timestamp: str | None,
        call: Callable[[Emit], None],
        emit: Emit,
        emit_letter: Emit | None,
    ) -> None:
        """Write the code for one row: `call` writes the operator's own part, and `emit` passes each result on.

        `emit_letter`: None = nobody reads the letters.
        """
        if self.failed.is_bounded:
            code.count_into(self.failed.seen)
        came = value if emit_letter is None else self._generate_record_as_it_came(code, value)
        held = code.fresh("h")
        if self.passes_row:
            code.line(f"{held} = False")
        elif not self.gives_one:
            code.line(f"{held} = []")
        # A letter has the lines of the function in its traceback.
        with code.block("try:"), code.calling():
            call(lambda result, stamp: self._hold(code, held, result, (stamp, timestamp)))
        error = code.fresh("e")
        with code.block(f"except {code.bind_as('Exception', Exception)} as {error}:"):
            self._generate_failure(code, error, came, timestamp, emit_letter)
        if self.passes_row:
            with code.block("else:"), code.block(f"if {held}:"):
                emit(value, timestamp)
        elif self.gives_one:
            with code.block("else:"):
                emit(held, timestamp)
        else:
            result = code.fresh("v")
            with code.block("else:"), code.block(f"for {result} in {held}:"):
                emit(result, timestamp)

    def _generate_record_as_it_came(self, code: CodeWriter, value: str) -> str:
        """Write the code that keeps the record for its letter, since the function may change it before it fails."""
        declared = self.failed.type_of(self.input_index)
        if not needs_fixing(declared, self.object_reuse):
            return value
        came = code.fresh("r")
        code.line(f"{came} = {value}")
        with code.block("try:"):
            code.line(f"{came} = {generate_fixed(code, value, declared, self.object_reuse)}")
        with code.block(f"except {code.bind_as('UncopyableValueError', UncopyableValueError)}:"):
            # Such a record cannot be encoded either, or its class forbids copies alone.
            code.line("pass")
        return came

    def _hold(self, code: CodeWriter, held: str, result: str, stamps: tuple[str | None, str | None]) -> None:
        if stamps[0] != stamps[1]:
            raise TypeError("an operator that stamps its results cannot leave out rows")
        if self.passes_row:
            code.line(f"{held} = True")
        elif self.gives_one:
            code.line(f"{held} = {result}")
        else:
            # A generator may change an object after it has emitted it.
            fixed = generate_fixed(code, result, self.result_type, self.object_reuse)
            code.line(f"{held}.append({fixed})")

    def _generate_failure(
        self, code: CodeWriter, error: str, value: str, timestamp: str | None, emit_letter: Emit | None
    ) -> None:
        arguments = f"({error}, {int(self.input_index)}, {value}, {timestamp})"
        if emit_letter is None:
            code.line(code.bind("leave_out", self.failed.leave_out) + arguments)
        else:
            letter = code.fresh("l")
            code.line(f"{letter} = {code.bind('letter', self.failed.letter)}{arguments}")
            emit_letter(letter, timestamp)
