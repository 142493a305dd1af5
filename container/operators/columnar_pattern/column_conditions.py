"""ColumnConditions: the conditions over columns of a pattern, computed for all rows of a record batch at once.

Owner: the task thread. A null is no match, as in `filter`. Must not know steps, keys or time.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from yarrow.cep.conditions import ColumnCondition
from yarrow.cep.pattern import Pattern
from yarrow.container.operators.columnar.column_selection import truth_of

#: The result of each condition for each row: bool, shape (rows, conditions).
Truths = npt.NDArray[np.bool_]


class ColumnConditions:
    """The conditions over columns of one pattern."""

    def __init__(self, pattern: Pattern) -> None:
        #: In the order of the columns of `Truths`.
        self.conditions = [
            condition for condition in pattern.conditions() if isinstance(condition, ColumnCondition)
        ]

    def truths(self, records: pa.RecordBatch) -> Truths:
        """The results for the rows of a batch: bool, shape (rows, conditions)."""
        # The results of each condition stand together.
        found = np.zeros((len(self.conditions), records.num_rows), np.bool_).T
        known: dict[Any, npt.NDArray[np.bool_]] = {}
        for number, condition in enumerate(self.conditions):
            result = known.get(condition.expression)
            if result is None:
                truth = truth_of(condition.expression, records).fill_null(False)
                result = known[condition.expression] = truth.to_numpy(zero_copy_only=False)
            found[:, number] = result
        return found

    def look_at(self, truths: list[bool]) -> None:
        """Gives the conditions their results for the record that the matcher gets next."""
        for condition, holds in zip(self.conditions, truths, strict=True):
            condition.holds = holds
