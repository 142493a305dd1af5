"""CepRuntimeContext: what functions of matches and rich conditions may ask for.

Owner: the task thread. Job, task, metrics and parameters are those of every function. State and accumulators are
refused, as in Flink: the partial matches of a key are the operator's own.
"""

from __future__ import annotations

from typing import Any, NoReturn

from yarrow.container.operators.runtime_context import OperatorRuntimeContext
from yarrow.runtime.common.errors import UnsupportedFeatureError


class CepRuntimeContext(OperatorRuntimeContext):
    """The runtime context of a pattern's functions and conditions."""

    def _refused(self, what: str) -> NoReturn:
        raise UnsupportedFeatureError(
            f"operator '{self._context.descriptor.name}': functions and conditions of a pattern have no {what}, as in"
            " Flink. Keep it behind the matches, in a process function"
        )

    def get_state(self, state_descriptor: Any) -> NoReturn:
        """Refused."""
        self._refused("state")

    get_list_state = get_map_state = get_reducing_state = get_aggregating_state = get_state

    def add_accumulator(self, name: str, accumulator: Any) -> NoReturn:
        """Refused."""
        self._refused("accumulators")

    def get_accumulator(self, name: str) -> NoReturn:
        """Refused."""
        self._refused("accumulators")
