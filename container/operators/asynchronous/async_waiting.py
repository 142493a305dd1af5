"""AsyncWaitingOperator: begins calls for rows, and emits their results as the queue lets them leave.

Owner: the task thread. WaitingCallsOperator has all that columns do in the same way. Behind key_by an error tells the
key. Must not know how calls are run, nor which result may leave.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

from yarrow.common.typeinfo import Types
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.operators.asynchronous.called_function import (
    ResultsOf,
    results_of_record,
    results_of_rows,
)
from yarrow.container.operators.asynchronous.result_queue import PendingResult
from yarrow.container.operators.asynchronous.waiting_calls import IN_FLIGHT, WaitingCallsOperator
from yarrow.container.operators.base import OperatorContext, declared_type, input_type_of
from yarrow.container.operators.bulk_row_operator import BulkRowOperator
from yarrow.container.operators.registry import runs
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.datastream.state import ListState, ListStateDescriptor
from yarrow.runtime.data.immutability import copier_for
from yarrow.runtime.data.key_groups import key_group_of, key_group_range_for_operator_index
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.graph.async_spec import AsyncByKeyOperator, AsyncWaitOperator
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.snapshot.handles import OperatorStateMode


@runs(AsyncWaitOperator)
class AsyncWaitingOperator(WaitingCallsOperator, BulkRowOperator):
    """Runs an AsyncFunction, or an AsyncBatchFunction on rows."""

    def __init__(self, name: str, spec: AsyncWaitOperator, descriptor: OperatorDescriptor) -> None:
        super().__init__(name, spec, descriptor)
        declared = declared_type(input_type_of(descriptor))
        row_type = Types.PICKLED_BYTE_ARRAY() if declared is None else declared
        self._row_type = row_type
        #: True if the record has a timestamp, the timestamp or 0, the record.
        self.stored_type = Types.TUPLE([Types.BOOLEAN(), Types.LONG(), row_type])
        #: The key of a row; None = the stream is not keyed.
        self._key_of: Callable[[Any], Any] | None = None

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        blob = self._spec.key_selector
        if blob is not None:
            self._key_of = method_of(load_function(blob, self.name), "get_key", self.name)
            if self.failed is not None:
                self.failed.keyed_by(self._key_of)

    def take_rows(self, rows: list[Any], timestamps: list[int | None] | None) -> None:
        self.begin(map(self.pending, rows, timestamps or [None] * len(rows)))

    @property
    def pending(self) -> Callable[[Any, int | None], PendingResult]:
        """Makes a record for the queue of a row and its timestamp."""
        return PendingResult

    # ------------------------------------------------------------------ calls and results

    @property
    def argument_copier(self) -> Callable[[Any], Any] | None:
        copier = None if self.context.environment.object_reuse else copier_for(self._row_type)
        # The list of a batch may change even if its rows cannot.
        return list if copier is None and self._spec.batch is not None else copier

    def argument_of(self, records: Sequence[PendingResult]) -> list[Any]:
        return [record.row for record in records]

    @property
    def results_of(self) -> ResultsOf:
        return results_of_record if self._spec.batch is None else results_of_rows

    def shares_of(self, records: Sequence[PendingResult], results: list[Any]) -> Iterable[list[Any]]:
        return results

    def emitted(self, complete: PendingResult) -> Iterable[tuple[Any, int | None]]:
        results, timestamp = complete.results, complete.timestamp
        assert results is not None, "only complete records leave"
        # Most have one, for which a tuple is the cheapest.
        return ((results[0], timestamp),) if len(results) == 1 else [(each, timestamp) for each in results]

    def described(self, records: Sequence[PendingResult]) -> str:
        first = records[0]
        text = short_record(first.row)
        if self._key_of is not None:
            try:
                text += f" (of the key {short_record(self._key_of(first.row))})"
            except Exception:
                text += " (its key is unknown)"
        return text if len(records) == 1 else f"{text} and {len(records) - 1} more of its batch"

    # ------------------------------------------------------------------ state

    def stored(self, pending: PendingResult) -> tuple[bool, int, Any]:
        return pending.timestamp is not None, pending.timestamp or 0, pending.row

    def restored(self, elements: Sequence[tuple[bool, int, Any]]) -> Iterable[PendingResult]:
        pending = self.pending
        return [pending(row, stamp if timed else None) for timed, stamp, row in elements]


@runs(AsyncByKeyOperator)
class AsyncByKeyWaitingOperator(AsyncWaitingOperator):
    """Runs an asynchronous function whose results leave in the order of each key.

    A record in flight must be restored by the subtask of its key. So each subtask gets the records of all, and takes
    those of its key groups.
    """

    engine_lists: ClassVar[Mapping[str, OperatorStateMode]] = {IN_FLIGHT: OperatorStateMode.UNION}

    def in_flight_state(self) -> ListState[Any]:
        descriptor: ListStateDescriptor[Any] = ListStateDescriptor(IN_FLIGHT, self.stored_type)
        return self.context.operator_state.union_list_state(descriptor)

    @property
    def pending(self) -> Callable[[Any, int | None], PendingResult]:
        return self._pending

    def _pending(self, row: Any, timestamp: int | None) -> PendingResult:
        assert self._key_of is not None, "the stream is keyed"
        try:
            return PendingResult(row, timestamp, canonicalize(self._key_of(row)))
        except Exception as error:
            raise OperatorFailure(self.name, short_record(row), error) from error

    def restored(self, elements: Sequence[tuple[bool, int, Any]]) -> Iterable[PendingResult]:
        environment = self.context.environment
        most = environment.max_parallelism
        own = key_group_range_for_operator_index(most, environment.parallelism, environment.subtask)
        return [record for record in super().restored(elements) if own.holds(key_group_of(record.key, most))]
