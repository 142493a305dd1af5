"""The program behind an ExecutionEnvironment: its transformations, of which a job runs what its sinks read.

Owner: the thread that builds the program. The program is a batch job, whatever mode streams have.
"""

from __future__ import annotations

from collections.abc import Sequence

import yarrow.runtime.config.options.execution as execution_options
import yarrow.runtime.config.options.pipeline as pipeline_options
from yarrow.batch.dataset.output.file_output import FileOutput
from yarrow.common.configuration import Configuration
from yarrow.common.job_client import JobClient
from yarrow.datastream.execution_mode import RuntimeExecutionMode
from yarrow.datastream.program.graph_builder import GraphBuilder
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.ids import IdFactory
from yarrow.runtime.config.options.execution import RuntimeMode
from yarrow.runtime.graph.executor import ProgramAborted
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.transformations import Transformation

DEFAULT_JOB_NAME = "DataSet Job"


class PlanBuilder(GraphBuilder):
    """Collects transformations; only what a sink reads becomes part of a job."""

    @property
    def roots(self) -> Sequence[Transformation]:
        """The sinks of the next job."""
        return tuple(root for root in self._roots if root.spec.is_sink)


class BoundedProgram(StreamExecutionEnvironment):
    """A program of data sets: the settings, sources and execution of streams, in batch mode."""

    def __init__(self, configuration: Configuration | None = None, ids: IdFactory | None = None) -> None:
        super().__init__(configuration, ids)
        if self._settings().get(execution_options.RUNTIME_MODE) is not RuntimeMode.AUTOMATIC:
            self.set_runtime_mode(RuntimeExecutionMode.BATCH)
        self.graph_builder: GraphBuilder = PlanBuilder(self.get_parallelism)
        #: Files that the next job writes.
        self.file_outputs: list[FileOutput] = []

    def get_job_graph(self, job_name: str | None = None, clear_transformations: bool = True) -> JobGraph:
        if not self.graph_builder.roots:
            raise InvalidProgramError(
                "No new data sinks have been defined since the last execution. The last execution refers to the latest "
                "call to execute(), count(), collect(), or print(). Call output(), write_as_text() or another sink's "
                "method before execute()."
            )
        name = job_name or self._settings().get(pipeline_options.NAME) or DEFAULT_JOB_NAME
        return super().get_job_graph(name, clear_transformations)

    def submit(self, job_name: str | None = None) -> JobClient:
        """Submits a job of the sinks defined since the last one. Raises InvalidProgramError if there is none."""
        try:
            return self.execute_async(job_name)
        except ProgramAborted as planned:
            planned.is_stream = False
            raise

    def _check_outputs(self) -> None:
        for output in self.file_outputs:
            output.check()
        self.file_outputs.clear()
