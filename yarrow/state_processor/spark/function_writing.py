"""A partition's state and timers made by a KeyedStateBootstrapFunction, in the operator of a job.

Owner: a task's thread. The backend of the writer's configuration holds the state of the partition meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Never

import pyarrow as pa
from msgspec import structs

from yarrow.runtime.common.ids import JobID, OperatorID
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.snapshot.handles import OperatorSubtaskState
from yarrow.runtime.snapshot.output import SnapshotOutput
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.functions import KeyedStateBootstrapFunction
from yarrow.state_processor.spark.keyed_columns import GROUP, KeyedRows
from yarrow.state_processor.table_cells import rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRows(KeyedRows):
    """Rows that a function makes state of."""

    function: KeyedStateBootstrapFunction[Any, Any]
    operator_id: OperatorID
    job_id: JobID


def written_by_function(
    rows: FunctionRows, tables: Iterable[pa.Table], key_groups: KeyGroupRange, output: SnapshotOutput
) -> OperatorSubtaskState:
    """Calls the function with each row. Raises StateProcessorError that begins with the function's own traceback."""
    # Imported here alone: tasks that write columns need no operators.
    from yarrow.container.fragment import FragmentFailedError
    from yarrow.state_processor.transformations import NewOperator, OperatorTransformation

    transformation = OperatorTransformation.bootstrap_with(_rows(tables)).key_by(rows.key, rows.key_type)
    operator = NewOperator(
        operator_id=rows.operator_id,
        name=rows.operator,
        max_parallelism=rows.buckets.max_parallelism,
        job_id=rows.job_id,
        output=output,
        foreign_files=_none,
        configuration=rows.configuration,
    )
    try:
        state = transformation.transform(rows.function).write(operator)
    except FragmentFailedError as error:
        raise StateProcessorError(str(error)) from error
    own = (key_groups.start, key_groups.end)
    return OperatorSubtaskState(
        keyed=tuple(structs.replace(handle, key_groups=own) for handle in state.keyed)
    )


def _rows(tables: Iterable[pa.Table]) -> Iterator[Any]:
    for table in tables:
        yield from rows_of(table.drop_columns([GROUP]))


def _none() -> Never:
    raise AssertionError("a task has no tasks of its own")
