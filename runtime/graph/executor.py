"""PipelineExecutor: runs a program's jobs on one kind of cluster; and how executors are found.

Owner: the thread that runs the program. The graph-building API knows this protocol only. A table has our own executors.
Other packages register theirs under the entry point group `yarrow.executors`. `plan_only` and `collect_job_graphs`
replace the executor while a user's main() runs, so that it runs without its jobs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, cast, runtime_checkable

import msgspec

from yarrow.common.completable_future import CompletableFuture
from yarrow.common.job_client import JobClient
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.common.job_id import JobID
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.graph.job_graph import JobGraph

if TYPE_CHECKING:
    from yarrow.runtime.graph.stream_graph import StreamGraph

#: The group of entry points; a name in it is a value of `execution.target`.
ENTRY_POINT_GROUP = "yarrow.executors"

#: Our own executors, found without a look at entry points. No other package takes the place of one.
_OWN_EXECUTORS = {
    "local": "yarrow.embedded.embedded_executor:EmbeddedExecutor",
    "remote": "yarrow.client.standalone.remote_executor:RemoteExecutor",
    "yarn-session": "yarrow.client.yarn.yarn_executor:YarnSessionExecutor",
    "yarn-per-job": "yarrow.client.yarn.yarn_executor:YarnJobExecutor",
    "yarn-application": "yarrow.client.yarn.yarn_executor:YarnApplicationExecutor",
}


class LocalFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that workers need; the executor uploads it and sets its blob key in the JobGraph."""

    name: str
    #: python_file, archive, requirements, requirements_cache or cached_file.
    kind: str
    path: str
    #: Folder into which an archive is unpacked; None = its own name.
    target: str | None = None
    executable: bool = False


class PipelineExecutor(Protocol):
    """Submits a job to one kind of cluster."""

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        """Submits a job; returns when the cluster has accepted it.

        Raises, and leaves nothing behind, if it has not.
        """
        ...


@runtime_checkable
class CollectingJobClient(Protocol):
    """A JobClient that can fetch the results of execute_and_collect."""

    def fetch_collected(self, collect_id: str, max_rows: int) -> Sequence[Any] | None:
        """The next rows, at most `max_rows`; waits until there are some; None = the end.

        Raises the job's error if it failed.
        """
        ...


class ProgramAborted(BaseException):
    """A program that runs only for its plan reached its first `execute`.

    It is no Exception, so that a program which catches those still ends here.
    """

    def __init__(self, job_graph: JobGraph, files: Sequence[LocalFile]) -> None:
        super().__init__(f"{job_graph.name!r} was planned, not executed")
        self.job_graph = job_graph
        self.files = tuple(files)
        #: Whether the program means something as a stream; a DataSet program does not.
        self.is_stream = True


class _PlanOnlyExecutor:
    """Ends the program with its JobGraph."""

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        raise ProgramAborted(job_graph, files)


def only_plans(executor: PipelineExecutor) -> bool:
    """Whether the executor stops the program at its plan: a job that cannot run may still be shown."""
    return isinstance(executor, _PlanOnlyExecutor)


def with_history(executor: PipelineExecutor) -> PipelineExecutor:
    """The executor that runs each job over its history first, and then as a stream.

    Raises UnsupportedFeatureError where nobody waits for the jobs of the program.
    """
    if isinstance(executor, _JobGraphCollector):
        raise UnsupportedFeatureError(
            "execution.history.until: the stream starts when its history is read, and here nobody waits for that. Run"
            " the program with `yarrow run`, or with execution.history.start-stream: false there and with the savepoint"
            " here."
        )
    made = import_module("yarrow.client.history_executor").HistoryExecutor(executor)
    return cast("PipelineExecutor", made)


class _JobGraphCollector:
    """Passes each JobGraph to a callback and lets the program continue, like a detached submission."""

    def __init__(self, deliver: Callable[[JobGraph, Sequence[LocalFile]], None]) -> None:
        self._deliver = deliver

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        self._deliver(job_graph, files)
        return DetachedJobClient(job_graph.job_id)


class DetachedJobClient(JobClient):
    """The client of a job that nobody waits for: its result is empty and there at once."""

    def __init__(self, job_id: str) -> None:
        self._job_id = JobID(job_id)

    def get_job_id(self) -> JobID:
        return self._job_id

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return CompletableFuture.completed(JobStatus.CREATED)

    def cancel(self) -> CompletableFuture[None]:
        return self._refuse("cancelled")

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        return self._refuse("stopped")

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        return self._refuse("saved")

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        return CompletableFuture.completed({})

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        return CompletableFuture.completed(JobExecutionResult(self._job_id, -1))

    def _refuse(self, what: str) -> CompletableFuture[Any]:
        return CompletableFuture.failed(
            UnsupportedFeatureError(
                f"Job {self._job_id} was submitted detached and cannot be {what} by the program that"
                " submitted it:"
                " use the command line or the REST API."
            )
        )


_in_place: ContextVar[PipelineExecutor | None] = ContextVar("yarrow_executor", default=None)


@contextmanager
def executor_in_place(executor: PipelineExecutor) -> Iterator[None]:
    """Sends every `execute` of this context to `executor`, whatever `execution.target` says."""
    token = _in_place.set(executor)
    try:
        yield
    finally:
        _in_place.reset(token)


@contextmanager
def plan_only() -> Iterator[None]:
    """Makes the first `execute` of this context raise ProgramAborted with its JobGraph; nothing is started."""
    with executor_in_place(_PlanOnlyExecutor()):
        yield


@contextmanager
def collect_job_graphs(deliver: Callable[[JobGraph, Sequence[LocalFile]], None]) -> Iterator[None]:
    """Makes every `execute` of this context call `deliver` and return at once; nothing is started."""
    with executor_in_place(_JobGraphCollector(deliver)):
        yield


_base_configuration: ContextVar[Mapping[str, str] | None] = ContextVar(
    "yarrow_base_configuration", default=None
)


class _ProcessDefaults:
    """The defaults of contexts without settings: a thread begins with an empty context."""

    executor: PipelineExecutor | None = None
    configuration: Mapping[str, str] | None = None
    change: GraphChange | None = None


def use_for_this_process(executor: PipelineExecutor, configuration: Mapping[str, str]) -> None:
    """Like `executor_in_place` and `configuration_in_place`, in every thread, until the process ends.

    It is for a process that runs one program.
    """
    _ProcessDefaults.executor = executor
    _ProcessDefaults.configuration = MappingProxyType(dict(configuration))


def base_configuration() -> Mapping[str, str]:
    """The configuration with which environments of this context begin: the command line's and the file's settings.

    Without a command line, the settings of the file that YARROW_CONF_DIR or FLINK_CONF_DIR names. Raises
    ConfigFileError if the directory has no such file.
    """
    in_place = _base_configuration.get()
    if in_place is not None:
        return in_place
    if _ProcessDefaults.configuration is not None:
        return _ProcessDefaults.configuration
    if not any(os.environ.get(variable) for variable in ("YARROW_CONF_DIR", "FLINK_CONF_DIR")):
        return MappingProxyType({})
    from yarrow.runtime.config.files import load_settings

    return load_settings(os.environ).to_dict(redact=False)


@contextmanager
def configuration_in_place(configuration: Mapping[str, str]) -> Iterator[None]:
    """Makes environments of this context begin with `configuration`; the program's own settings override it."""
    token = _base_configuration.set(MappingProxyType(dict(configuration)))
    try:
        yield
    finally:
        _base_configuration.reset(token)


#: Changes a StreamGraph in place, before claims and ids of operators are settled. It may refuse the program by raising.
GraphChange = Callable[["StreamGraph"], None]


def change_graphs_of_this_process(change: GraphChange) -> None:
    """Let `change` change each StreamGraph that this process makes from now on: a command runs a program otherwise."""
    _ProcessDefaults.change = change


def changed_as_wanted(graph: StreamGraph) -> None:
    """Change the graph if the process was told to. Raises what the change raises."""
    if _ProcessDefaults.change is not None:
        _ProcessDefaults.change(graph)


def executor_for(target: str) -> PipelineExecutor:
    """The replaced executor of the context, else the target's.

    Raises InvalidProgramError with the known targets.
    """
    in_place = _in_place.get() or _ProcessDefaults.executor
    if in_place is not None:
        return in_place
    own = _OWN_EXECUTORS.get(target)
    if own is None:
        return cast("PipelineExecutor", _registered_executor(target)())
    module, _, attribute = own.partition(":")
    return cast("PipelineExecutor", getattr(import_module(module), attribute)())


def _registered_executor(target: str) -> Any:
    """The executor class of another package.

    Raises InvalidProgramError, which names the targets there are, or the package whose class cannot be imported.
    """
    # Looks into every installed package, which our own targets do without.
    from importlib.metadata import entry_points

    registered = {point.name: point for point in entry_points(group=ENTRY_POINT_GROUP)}
    if target not in registered:
        raise InvalidProgramError(
            f"execution.target is {target!r}, for which no executor is installed;"
            f" there are: {', '.join(sorted({**_OWN_EXECUTORS, **registered}))}."
        )
    point = registered[target]
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        package = "an installed package" if point.dist is None else f"the package {point.dist.name}"
        raise InvalidProgramError(
            f"execution.target is {target!r}, whose executor {point.value} of {package} cannot be imported: {error}."
        ) from error
