"""BatchFlow: the way of record batches through the operators of a chain, in which mails may come between two batches.

Owner: the task thread. Each batch goes on before its operator makes the next, so a generator holds one batch. What an
input or a source gave may wait between two batches: the stack of opened generators is the rest of the way. It must not
know slices, credit or checkpoints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from yarrow.container.codegen.attribution import Attribution
from yarrow.container.network.partition import Partition
from yarrow.container.operators.base import Operator
from yarrow.container.operators.columnar_operator import BatchTarget
from yarrow.runtime.data.elements import ArrowBatch

if TYPE_CHECKING:
    from yarrow.container.network.columnar_partition import ColumnarResultPartition

#: Runs rows behind the operator of that index.
RunRows = Callable[[int, list[Any], list[int | None] | None], None]


class _Call(NamedTuple):
    """A batch that an operator has not been called with yet."""

    input_index: int
    batch: ArrowBatch


#: Index of an operator, and the call that is due or the results that are left; the innermost stands last.
_Stack = list[tuple[int, _Call | Iterator[ArrowBatch]]]


def never() -> bool:
    """Nothing interrupts."""
    return False


class BatchFlow:
    """The batches that are on their way through one chain."""

    def __init__(
        self,
        operators: Sequence[Operator],
        partitions: Sequence[Partition],
        children: Callable[[int, str | None], Iterable[int]],
        run_rows: RunRows,
    ) -> None:
        """`children`: the operators that read the main output of one, or the side output of that tag."""
        self._operators = operators
        self._partitions = partitions
        self._children = children
        self._run_rows = run_rows
        self._open: _Stack = []

    def __bool__(self) -> bool:
        return bool(self._open)

    @property
    def free_from(self) -> int:
        """Index of the first operator behind all those that are at work on a batch."""
        return 1 + max((index for index, _ in self._open), default=-1)

    def begin(self, input_index: int, batch: ArrowBatch) -> None:
        """Takes a batch of an input of the head; `proceed` carries it on."""
        self._open.append((0, _Call(input_index, batch)))

    def begin_behind(self, index: int, batch: ArrowBatch) -> None:
        """Takes a batch that an operator has made."""
        self._hand_on(self._open, index, batch)

    def proceed(self, is_over: Callable[[], bool] = never) -> None:
        """Carries batches on, until none is left or `is_over` says so between two of them."""
        self._advance(self._open, is_over)

    def run_all(self, index: int, produced: Iterable[ArrowBatch]) -> int:
        """Passes all results of an operator on at once; returns the number of their rows."""
        batches, rows = iter(produced), 0
        while (batch := self._next(index, batches)) is not None:
            rows += len(batch)
            self.run_behind(index, batch)
        return rows

    def run_behind(self, index: int, batch: ArrowBatch) -> None:
        """Passes a batch of an operator on at once."""
        stack: _Stack = []
        self._hand_on(stack, index, batch)
        self._advance(stack, never)

    def close(self) -> list[BaseException]:
        """Closes generators that are left; returns the errors instead of raising the first."""
        errors: list[BaseException] = []
        while self._open:
            index, rest = self._open.pop()
            close = getattr(rest, "close", None)
            if close is not None:
                try:
                    with self._attributed(index):
                        close()
                except BaseException as error:  # a `finally` of user code may raise anything
                    errors.append(error)
        return errors

    def _advance(self, stack: _Stack, is_over: Callable[[], bool]) -> None:
        while stack:
            index, rest = stack[-1]
            if isinstance(rest, _Call):
                stack.pop()
                self._call(stack, index, rest)
                continue
            batch = self._next(index, rest)
            if batch is None:
                stack.pop()
                continue
            self._hand_on(stack, index, batch)
            if is_over():
                return

    def _next(self, index: int, batches: Iterator[ArrowBatch]) -> ArrowBatch | None:
        with self._attributed(index):
            return next(batches, None)

    def _hand_on(self, stack: _Stack, index: int, batch: ArrowBatch) -> None:
        tag_id = batch.side_output
        if tag_id is not None:
            batch = ArrowBatch(batch.batch, batch.timestamps, batch.kinds)
        for partition in self._partitions:
            if partition.edge.source_operator == index and partition.edge.side_output == tag_id:
                cast("ColumnarResultPartition", partition).emit_batch(batch)
        stack += [(child, _Call(0, batch)) for child in self._children(index, tag_id)][::-1]

    def _call(self, stack: _Stack, index: int, call: _Call) -> None:
        operator = self._operators[index]
        if not operator.takes_batches:
            raise TypeError(
                f"operator '{operator.name}' takes no record batches, but the job leads some to it"
            )
        if index:
            operator.records_in += len(call.batch)
        target = cast(BatchTarget, operator)
        if operator.converts_to_rows:
            with self._attributed(index):
                rows, timestamps = target.to_rows(call.batch)
            self._run_rows(index, rows, timestamps)
            return
        with self._attributed(index):
            batches = iter(target.process_input(call.input_index, call.batch))
        stack.append((index, batches))

    def _attributed(self, index: int) -> Attribution:
        return Attribution(self._operators[index].name)
