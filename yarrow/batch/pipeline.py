"""Pipeline: stages on Spark, declared one after the other and executed as one job.

Owner: the thread that builds the program. It starts nothing itself: `execute` builds the JobGraph and hands it to the
executor of `execution.target`, as a stream's environment does.
"""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import msgspec

import yarrow.runtime.config.options.cluster as cluster_options
import yarrow.runtime.config.options.execution as execution_options
from yarrow.batch.pipeline_graph import DeclaredStage, PipelineError, pipeline_graph
from yarrow.common.configuration import Configuration
from yarrow.common.job_client import JobClient
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.common.pipelines.stage import PipelineFunction
from yarrow.common.pipelines.stage_data import AnyData, ParameterValue, StageData
from yarrow.datastream.environment_settings import LOCAL_TARGET, EnvironmentSettings
from yarrow.datastream.program.job_waiting import wait_for_job
from yarrow.runtime.common.errors import FileSystemError, YarrowError
from yarrow.runtime.common.ids import IdFactory, JobID, RandomIdFactory
from yarrow.runtime.common.paths import scheme_of, with_default_scheme
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import validate
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.graph.batch.pipeline_storage import check_storage
from yarrow.runtime.graph.executor import executor_for, only_plans
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.user_code import UserCodePacker, describe_callable

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Pipeline(EnvironmentSettings):
    """A program of stages, its configuration, and the way to execute it.

    Stages name their inputs, so they may be declared in any order.
    """

    def __init__(
        self,
        name: str = "pipeline",
        *,
        parameters: Mapping[str, ParameterValue] | None = None,
        configuration: Configuration | None = None,
        ids: IdFactory | None = None,
    ) -> None:
        """`parameters` are those of all stages. Raises PipelineError, and ConfigError for keys and values."""
        super().__init__(configuration)
        validate(self._settings())
        self._name = name
        self._ids = RandomIdFactory() if ids is None else ids
        self._parameters = _checked(parameters or {}, f"pipeline {name!r}")
        self._sources: list[AnyData] = []
        self._stages: list[DeclaredStage] = []
        self._packer = UserCodePacker()

    def read(self, *sources: AnyData) -> None:
        """Declare data that is there before the pipeline begins: stages name it as an input.

        Raises PipelineError for data without a path.
        """
        for source in sources:
            _check_data(source)
            if not source.path:
                raise PipelineError(
                    f"pipeline.read declares {source.name!r} without a path: name the folder in which it is."
                )
            self._sources.append(self._in_its_file_system(source))

    def stage(
        self,
        name: str,
        function: PipelineFunction,
        *,
        inputs: Iterable[str] = (),
        outputs: AnyData | Sequence[AnyData] = (),
        after: Iterable[str] = (),
        parameters: Mapping[str, ParameterValue] | None = None,
        retries: int = 0,
    ) -> None:
        """Declare a stage: `function(spark, ...)` gets the SparkSession, then by name its inputs and parameters.

        `inputs` are names of data that other stages leave, or that `read` declares. The stage begins when these, and
        the stages in `after`, are done. `parameters` are laid over those of the pipeline. `retries`: how often the
        stage begins again when its function has failed. Raises PipelineError.
        """
        if not isinstance(name, str) or not name:
            raise PipelineError(f"{name!r} is no name of a stage: give it a text.")
        if isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise PipelineError(f"Stage {name!r}: retries are a number of 0 or more, not {retries!r}.")
        required, optional, takes_all = _arguments(function, name)
        left = outputs if isinstance(outputs, Sequence) else (outputs,)
        self._stages.append(
            DeclaredStage(
                name=name,
                function=self._packer.pickle_stage(function, name),
                required=required,
                optional=optional,
                takes_all=takes_all,
                inputs=_texts(inputs, name, "inputs"),
                outputs=tuple(self._in_its_file_system(output) for output in left),
                after=_texts(after, name, "after"),
                parameters=_checked(parameters or {}, f"stage {name!r}"),
                retries=retries,
            )
        )

    def get_job_graph(self, job_name: str | None = None) -> JobGraph:
        """Return the JobGraph that `execute` would submit, with a new job id. Raises PipelineError."""
        settings = self._settings()
        validate(settings)
        return pipeline_graph(
            self._stages,
            self._sources,
            self._parameters,
            job_id=JobID(self._ids.hex_id()),
            name=job_name or self._name,
            user_code=self._packer.user_code(),
            configuration=self._configuration.to_dict(),
        )

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Execute the pipeline and wait for its end.

        Raises PipelineError before anything starts, and JobExecutionError, which begins with the user's own traceback
        if a stage's function failed. After a cancelled job it raises KeyboardInterrupt for Ctrl-C.
        """
        try:
            return wait_for_job(self._submit(job_name))
        except (YarrowError, ConfigError, BrokenPipeError) as error:
            # The message says it all: frames of the engine would come before it.
            raise error.with_traceback(None) from None

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Execute the pipeline and return at once with a handle on the job."""
        try:
            return self._submit(job_name)
        except (YarrowError, ConfigError) as error:
            raise error.with_traceback(None) from None

    def _submit(self, job_name: str | None) -> JobClient:
        settings = self._settings()
        files = self._files.all(settings)
        graph = self.get_job_graph(job_name)
        executor = executor_for(settings.get(execution_options.TARGET) or LOCAL_TARGET)
        if not only_plans(executor):
            self._check_storage(graph, settings)
        return executor.execute(graph, self._configuration.to_dict(), files)

    def _check_storage(self, graph: JobGraph, settings: Settings) -> None:
        """Looks at the paths that mean the same here as for the SparkDriver. Raises PipelineError."""
        is_local = self._is_local()
        former = use_hdfs_settings(HdfsSettings.of(settings, is_client=True))
        try:
            check_storage(graph, is_reached=lambda path: is_local or scheme_of(path) != "file")
        except FileSystemError as error:
            raise PipelineError(str(error)) from None
        finally:
            use_hdfs_settings(former)

    def _in_its_file_system(self, data: AnyData) -> AnyData:
        """The data with a whole path: a plain one lies in the file system of fs.default-scheme.

        Raises FileSystemError.
        """
        _check_data(data)
        _check_scheme(data)
        default = self._settings().get(cluster_options.DEFAULT_SCHEME)
        path = with_default_scheme(data.path, default) if data.path else ""
        if path and scheme_of(path) == "file" and not path.startswith("file:"):
            # The SparkDriver works in another folder.
            path = os.path.abspath(path)
        return msgspec.structs.replace(data, path=path)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Pipeline cannot be used inside a stage: it exists on the client only")


def _check_data(data: Any) -> None:
    if not isinstance(data, StageData):
        raise PipelineError(f"{data!r} is no data of a pipeline: declare a StageTable or StageFiles.")


def _check_scheme(data: AnyData) -> None:
    """A path that begins as `hdfs:/x` or `file:x` would be that of a local file with such a name."""
    scheme, colon, rest = data.path.partition(":")
    if not colon or "/" in scheme or rest.startswith("//") or data.path.startswith("file:/"):
        return
    raise PipelineError(
        f"{data.name!r} has the path {data.path}: write {scheme}://... for a place in a file system, or ./{data.path}"
        " for a local path with a colon."
    )


def _texts(names: Iterable[str], stage: str, what: str) -> tuple[str, ...]:
    if not isinstance(names, Iterable):
        raise PipelineError(f"Stage {stage!r}: {what} are names, not {names!r}.")
    found = (names,) if isinstance(names, str) else tuple(names)
    for name in found:
        if not isinstance(name, str):
            raise PipelineError(f"Stage {stage!r}: {what} are names, not {name!r}.")
    return tuple(dict.fromkeys(found))


def _checked(parameters: Mapping[str, Any], owner: str) -> dict[str, Any]:
    """The parameters; they travel as JSON and msgpack do."""
    if not isinstance(parameters, Mapping):
        raise PipelineError(f"{owner}: parameters are a dict of names and values, not {parameters!r}.")
    for name, value in parameters.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise PipelineError(
                f"{owner}: {name!r} is no name of a parameter: functions get it as an argument."
            )
        try:
            same = json.loads(json.dumps(value, allow_nan=False)) == value
        except (TypeError, ValueError):
            same = False
        if not same:
            raise PipelineError(
                f"{owner}: the parameter {name!r} is {value!r}: parameters are texts, numbers, booleans, None, lists"
                " and dicts of texts."
            )
    return dict(parameters)


def _arguments(function: Any, stage: str) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
    """The arguments behind the session: those without a default, those with one, and whether it takes any."""
    if not callable(function):
        raise PipelineError(f"Stage {stage!r}: {function!r} is no function.")
    try:
        found = list(inspect.signature(function).parameters.values())
    except ValueError:
        return (), (), True
    if not found or found[0].kind not in (inspect.Parameter.POSITIONAL_ONLY, _BY_NAME[0]):
        raise PipelineError(
            f"Stage {stage!r}: {describe_callable(function)} takes no SparkSession: its first argument is the session."
        )
    by_name = [each for each in found[1:] if each.kind in _BY_NAME]
    required = tuple(each.name for each in by_name if each.default is inspect.Parameter.empty)
    optional = tuple(each.name for each in by_name if each.default is not inspect.Parameter.empty)
    return required, optional, any(each.kind is inspect.Parameter.VAR_KEYWORD for each in found)
