"""TaskSuperstep: the superstep in which a task of an iteration's body runs, as its functions see it.

Owner: the task thread. Must not decide about the next superstep.
"""

from __future__ import annotations

import pickle
from typing import Any

from yarrow.container.batch.iteration_rounds import Superstep, new_aggregators
from yarrow.datastream.functions.iteration_functions import IterationRuntimeContext


class TaskSuperstep(IterationRuntimeContext):
    """The superstep of one task; its operators share the aggregators."""

    def __init__(self, superstep: Superstep) -> None:
        self._superstep = superstep
        self._aggregators = new_aggregators(superstep.control)
        self._previous = {name: pickle.loads(value) for name, value in superstep.aggregates.items()}

    def get_superstep_number(self) -> int:
        return self._superstep.number

    def get_iteration_aggregator(self, name: str) -> Any:
        return self._aggregators[self._known(name)]

    def get_previous_iteration_aggregate(self, name: str) -> Any:
        return self._previous.get(self._known(name))

    def _known(self, name: str) -> str:
        if name not in self._aggregators:
            raise KeyError(
                f"the iteration '{self._superstep.control.name}' has no aggregator '{name}': call register_aggregator"
                " before close_with"
            )
        return name

    def aggregates(self) -> dict[str, bytes]:
        """The pickled values of the task's aggregators."""
        return {name: pickle.dumps(each.get_aggregate(), 5) for name, each in self._aggregators.items()}
