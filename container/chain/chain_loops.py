"""ChainLoops: the generated functions of one chain. Each is compiled at its first chunk, and run.

When a debugger or a profiler begins to watch the thread, the loops are compiled anew, so that they call all functions.

Owner: the task thread. An exception of user code in a loop leaves as OperatorFailure with operator and
record; no frame of generated code is shown. It must not know slices, state or control elements.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from yarrow.container.chain.chain_compiler import ChainCompiler
from yarrow.container.codegen.code_writer import CompiledCode, LineOwner
from yarrow.container.codegen.inlining.functions import is_traced
from yarrow.container.network.partition import Partition
from yarrow.container.network.result_partition import ResultPartition
from yarrow.container.operators.base import Operator
from yarrow.container.protocol.failure import OperatorFailure, generated_line, short_record


class ChainLoops:
    """The generated loops of one chain: over rows that reach the head, or that leave an operator."""

    def __init__(
        self,
        operators: Sequence[Operator],
        compiler: ChainCompiler,
        partitions: Sequence[Partition],
        on_compiled: Callable[[CompiledCode], None] | None = None,
    ) -> None:
        """`on_compiled` gets each generated function before its first call."""
        self._operators = operators
        self._compiler = compiler
        self._partitions = partitions
        self._compiled: dict[tuple[Any, ...], CompiledCode] = {}
        #: True from the first row with a timestamp on: see `run`.
        self._timestamped = False
        self._on_compiled = on_compiled

    def open(self) -> None:
        """Takes from the opened operators which of them stamp rows."""
        self._timestamped = any(operator.stamps_rows for operator in self._operators)

    def run(self, key: tuple[Any, ...], rows: Iterable[Any], timestamps: Iterable[int | None] | None) -> None:
        """Runs rows.

        The key is ("input", index of the head's input), or ("behind", operator, side output) for results.
        """
        # Once a row had a timestamp, all rows run with one (or None): a buffer must not mix rows with and
        # without.
        if timestamps is None:
            if self._timestamped:
                timestamps = itertools.repeat(None)
        elif not self._timestamped:
            self._timestamped = True
            for partition in self._partitions:
                if isinstance(partition, ResultPartition):
                    partition.fill_timestamps()
        compiler = self._compiler
        if compiler.inlines and is_traced():
            # For good: a loop that comes back would go on with keys that it has read ahead.
            compiler.inlines = False
        place = key, self._timestamped, compiler.inlines
        code = self._compiled.get(place)
        if code is None:
            code = self._compiled[place] = self._compile(key)
            if self._on_compiled is not None:
                self._on_compiled(code)
        try:
            if timestamps is None:
                code.function(rows)
            else:
                code.function(rows, timestamps)
        except OperatorFailure:
            raise
        except BaseException as error:  # user code may raise anything, SystemExit included
            failure = self._explain(error, code)
            raise failure from failure.cause

    def read_ahead(self, input_index: int, rows: Sequence[Any]) -> bool:
        """Reads state at once for the next rows; False if the loop cannot do that, or has not run yet."""
        code = self._compiled.get((("input", input_index), self._timestamped, self._compiler.inlines))
        if code is None or code.keys_ahead is None:
            return False
        code.keys_ahead.read(rows)
        return True

    def _compile(self, key: tuple[Any, ...]) -> CompiledCode:
        if key[0] == "input":
            return self._compiler.compile_input(key[1], with_timestamps=self._timestamped)
        return self._compiler.compile_behind(key[1], key[2], with_timestamps=self._timestamped)

    def _explain(self, error: BaseException, code: CompiledCode) -> OperatorFailure:
        found = generated_line(error)
        owner, record = LineOwner(0, "v0"), ""
        if found is not None and found[0] == code.file_name:
            owner = code.owner_of_line(found[1]) or owner
            if owner.record in found[2]:
                record = short_record(found[2][owner.record])
        told = code.inlined_calls.told(error)
        if owner.consumer:
            return OperatorFailure(owner.consumer, record, told, in_exchange=True)
        return OperatorFailure(self._operators[owner.operator].name, record, told)

    def operator_at(self, file_name: str, line: int) -> Operator | None:
        """The operator of a line in a generated function; None if the line belongs to no operator."""
        for code in self._compiled.values():
            if code.file_name == file_name and (owner := code.owner_of_line(line)) is not None:
                return self._operators[owner.operator]
        return None

    def generated_sources(self) -> list[CompiledCode]:
        """The functions compiled so far."""
        return list(self._compiled.values())

    def close(self) -> None:
        """Forgets the generated code."""
        for code in self._compiled.values():
            code.dispose()
