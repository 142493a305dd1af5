"""KeyedResults: stands in for a user's process function on keyed input, and keeps its results by key.

Owner: the task thread. The rows that reach a sink do not tell the key of the function that made them. So a run with
this function names the first key for which the modes differ. Results go on unchanged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from yarrow.cli.verification.captured_rows import EntryRuns, commit_runs
from yarrow.container.codegen.user_functions import close_function, load_function, open_function
from yarrow.datastream import OutputTag
from yarrow.datastream.functions import (
    CheckpointedFunction,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    RuntimeContext,
)


class KeyedResults(CheckpointedFunction):
    """Does what the user's function does, whichever kind of process function on keyed input that is."""

    def __init__(self, function: bytes, operator: str, folder: str) -> None:
        """`function` is cloudpickle of the user's; entries of its results go to `folder` when it closes."""
        self._blob = function
        self._operator = operator
        self._folder = folder
        self._function: Any = None

    @property
    def _loaded(self) -> Any:
        if self._function is None:
            self._function = load_function(self._blob, self._operator)
        return self._function

    def initialize_state(self, context: FunctionInitializationContext) -> None:
        if isinstance(self._loaded, CheckpointedFunction):
            self._loaded.initialize_state(context)

    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        if isinstance(self._loaded, CheckpointedFunction):
            self._loaded.snapshot_state(context)

    def open(self, runtime_context: RuntimeContext) -> None:
        self._runs = EntryRuns(self._folder, f"{runtime_context.get_index_of_this_subtask()}")
        open_function(self._loaded, runtime_context)

    def close(self) -> None:
        try:
            close_function(self._loaded)
        finally:
            self._runs.flush()
            commit_runs(self._folder, self._runs.take())

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        """Passes on a record of the only input, or of the main one."""
        return self._kept(self._loaded.process_element(value, ctx), ctx)

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        """Passes on a record of the first of two inputs."""
        return self._kept(self._loaded.process_element1(value, ctx), ctx)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        """Passes on a record of the second of two inputs."""
        return self._kept(self._loaded.process_element2(value, ctx), ctx)

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterable[Any] | None:
        """Passes on a record of a broadcast input, which has no key."""
        results: Iterable[Any] | None = self._loaded.process_broadcast_element(value, ctx)
        return results

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        """Passes on a timer."""
        return self._kept(self._loaded.on_timer(timestamp, ctx), ctx)

    def _kept(self, results: Iterable[Any] | None, ctx: Any) -> Iterator[Any]:
        for result in results or ():
            # Results of side outputs reach other sinks.
            if not (type(result) is tuple and len(result) == 2 and isinstance(result[0], OutputTag)):
                self._runs.add(ctx.get_current_key(), result)
            yield result
