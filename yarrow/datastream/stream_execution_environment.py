"""StreamExecutionEnvironment: where a program begins and where it is executed.

Owner: the thread that builds the program; one environment is one program, whose jobs are executed one after
the other. It starts nothing itself: `execute` builds the JobGraph and hands it to the executor of
`execution.target`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, cast

import msgspec

import yarrow.runtime.config.options.batch as batch_options
import yarrow.runtime.config.options.checkpointing as checkpointing_options
import yarrow.runtime.config.options.cluster as cluster_options
import yarrow.runtime.config.options.execution as execution_options
import yarrow.runtime.config.options.pipeline as pipeline_options
import yarrow.runtime.config.options.python as python_options
import yarrow.runtime.config.options.rest as rest_options
from yarrow.common.configuration import Configuration
from yarrow.common.job_client import JobClient
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.common.typeinfo import TypeInformation
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.connectors.base import Boundedness, Sink, Source, StandsForSource
from yarrow.datastream.connectors.collection import CollectionSource
from yarrow.datastream.data_stream import DataStream, check_strategy, refuse
from yarrow.datastream.environment_settings import LOCAL_TARGET, EnvironmentSettings
from yarrow.datastream.functions import CheckpointedFunction, ParallelSourceFunction, SourceFunction
from yarrow.datastream.program.delivery_claims import log_claims, settle_claims
from yarrow.datastream.program.graph_builder import GraphBuilder, declared
from yarrow.datastream.program.job_waiting import wait_for_job
from yarrow.datastream.program.user_functions import declares_blocking, require_function
from yarrow.runtime.common.errors import UnsupportedFeatureError, YarrowError
from yarrow.runtime.common.ids import IdFactory, JobID, RandomIdFactory
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import tell_unheeded_in_batch, validate
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.graph.batch.batch_rules import in_mode
from yarrow.runtime.graph.batch.blocking_exchange import refuse_endless_results
from yarrow.runtime.graph.connector_spec import SourceFunctionOperator, SourceOperator
from yarrow.runtime.graph.executor import changed_as_wanted, executor_for, only_plans, with_history
from yarrow.runtime.graph.job_graph import JobGraph, ResultPartitionType, UserCode
from yarrow.runtime.graph.operator_spec import ColumnScan, StreamKind
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.graph.stream_graph import StreamGraph
from yarrow.runtime.graph.transformations import SpecTransformation
from yarrow.runtime.graph.translation.job_graph_generator import generate_job_graph
from yarrow.runtime.graph.translation.plan import execution_plan
from yarrow.runtime.graph.translation.stream_graph_generator import GraphSettings, generate_stream_graph

if TYPE_CHECKING:
    from yarrow.datastream.program.asked_source import AskedSource
    from yarrow.runtime.graph.batch.batch_runner import RunnerChoice

__all__ = ["StreamExecutionEnvironment"]

#: Flink's name, which scripts look for.
DEFAULT_JOB_NAME = "Flink Streaming Job"
REMOTE_TARGET = "remote"


#: A source or a sink.
C = TypeVar("C", bound="Source[Any, Any] | Sink[Any]")


class StreamExecutionEnvironment(EnvironmentSettings):
    """A program under construction, its configuration, and the way to execute it."""

    def __init__(self, configuration: Configuration | None = None, ids: IdFactory | None = None) -> None:
        super().__init__(configuration)
        self._ids = RandomIdFactory() if ids is None else ids
        self._unbounded: dict[int, str] = {}
        #: Sources that asked for schemas, by transformation.
        self._asked: dict[int, AskedSource] = {}
        #: Bounded sources of which no job has been made, by transformation.
        self._bounded: dict[int, Source[Any, Any]] = {}
        #: About how many bytes the sources of former jobs read: a later job may read them again.
        self._sizes: dict[int, int | None] = {}
        #: The builder to which streams of this environment add their transformations.
        self.graph_builder = GraphBuilder(self.get_parallelism)

    # Making an environment

    @staticmethod
    def get_execution_environment(configuration: Configuration | None = None) -> StreamExecutionEnvironment:
        """Return an environment for where the program was started: embedded, or the command line's.

        Raises ConfigError for a key or value that cannot be.
        """
        environment = StreamExecutionEnvironment(configuration)
        validate(environment._settings())
        return environment

    @staticmethod
    def create_local_environment(parallelism: int | None = None) -> StreamExecutionEnvironment:
        """Return an environment for an embedded cluster; parallelism is the number of cores unless given."""
        environment = StreamExecutionEnvironment(
            Configuration.from_dict({execution_options.TARGET.key: LOCAL_TARGET})
        )
        return environment if parallelism is None else environment.set_parallelism(parallelism)

    @staticmethod
    def create_remote_environment(host: str, port: int) -> StreamExecutionEnvironment:
        """Return an environment for the cluster whose REST address this is."""
        return StreamExecutionEnvironment(
            Configuration.from_dict(
                {
                    execution_options.TARGET.key: REMOTE_TARGET,
                    rest_options.ADDRESS.key: host,
                    rest_options.REST_PORT.key: str(port),
                }
            )
        )

    # Sources

    def from_collection(
        self, collection: Iterable[Any], type_info: TypeInformation | None = None
    ) -> DataStream:
        """Return the stream of the elements of a collection, read in order by one subtask."""
        output_type = declared(type_info)
        source = CollectionSource(collection, output_type)
        return self._source(
            "Collection Source", source, output_type, parallelism=1, non_parallel=True, without_time=True
        )

    def from_sequence(self, start: int, end: int) -> DataStream:
        """Return the stream of the whole numbers from `start` to `end`, both included, read in parallel."""
        from yarrow.datastream.connectors.number_seq import NumberSequenceSource

        return self._source(
            "Sequence Source",
            NumberSequenceSource(start, end),
            None,
            WatermarkStrategy.no_watermarks(),
            without_time=True,
        )

    def from_source(
        self,
        source: Source[Any, Any],
        watermark_strategy: WatermarkStrategy,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """Return the stream of a Source's records.

        The declared type is `type_info`, else what the source says. Raises what `source.validate` raises.
        """
        if not isinstance(source, Source):
            raise TypeError(
                f"from_source takes a Source, not {type(source).__name__}; a SourceFunction goes to"
                " add_source"
            )
        check_strategy(watermark_strategy, "from_source")
        return self._source(source_name, source, declared(type_info), watermark_strategy)

    def add_source(
        self,
        source_func: SourceFunction[Any] | StandsForSource,
        source_name: str = "Custom Source",
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """Return the stream of a SourceFunction's records, read by one subtask unless it is parallel.

        A FlinkKafkaConsumer stands for a KafkaSource, which all subtasks read.
        """
        if isinstance(source_func, StandsForSource):
            strategy = source_func.watermark_strategy or WatermarkStrategy.no_watermarks()
            return self.from_source(source_func.source(), strategy, source_name, type_info)
        require_function(source_func, SourceFunction, "add_source", callables=False)
        spec = SourceFunctionOperator(
            function=self.graph_builder.pickle(source_func, source_name, "source"),
            keeps_position=isinstance(source_func, CheckpointedFunction),
        )
        settings: dict[str, Any] = {"output_type": declared(type_info), "blocking": True}
        if not isinstance(source_func, ParallelSourceFunction):
            settings |= {"parallelism": 1, "non_parallel": True}
        return DataStream(self, self.graph_builder.source(source_name, spec, **settings))

    def read_text_file(self, file_path: str, charset_name: str = "UTF-8") -> DataStream:
        """Return the stream of the lines of a file, or of the files in a folder, local or hdfs://."""
        from yarrow.datastream.connectors.file_source import FileSource
        from yarrow.datastream.connectors.stream_format import StreamFormat

        source = FileSource.for_record_stream_format(
            StreamFormat.text_line_format(charset_name), file_path
        ).build()
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "Read Text File")

    def socket_text_stream(
        self, hostname: str, port: int, delimiter: str = "\n", max_retry: int = 0
    ) -> DataStream:
        """Return the stream of the texts that a server sends, read by one subtask."""
        from yarrow.datastream.connectors.socket.socket_text_source import SocketTextSource

        source = SocketTextSource(hostname, port, delimiter, max_retry)
        return self._source("Socket Stream", source, None, parallelism=1, non_parallel=True)

    def create_input(self, input_format: Any, type_info: TypeInformation | None = None) -> DataStream:
        """Return the stream of the records of a FileInputFormat, such as an AvroInputFormat.

        Raises UnsupportedFeatureError for another InputFormat.
        """
        from yarrow.datastream.connectors.file_input_format import FileInputFormat

        if not isinstance(input_format, FileInputFormat):
            raise UnsupportedFeatureError(
                "create_input takes an InputFormat of files, such as AvroInputFormat, and is refused for"
                f" {input_format!r}; use from_source with a FileSource or a Source of your own."
            )
        source = input_format.file_source()
        return self.from_source(source, WatermarkStrategy.no_watermarks(), "Read Files", type_info)

    def _source(
        self,
        name: str,
        source: Source[Any, Any],
        output_type: TypeInformation | None,
        strategy: WatermarkStrategy | None = None,
        **settings: Any,
    ) -> DataStream:
        source = self.in_default_file_system(source)
        # A source that cannot be read has no schema either.
        source.validate()
        assigns_times = strategy is not None and strategy.timestamp_assigner is not None
        if assigns_times and source.produced_schema() is not None:
            refuse(
                f"from_source of {name!r}, which gives record batches, with a timestamp assigner",
                "rows inside such a source: pass WatermarkStrategy.no_watermarks(), and call"
                " assign_timestamps_and_watermarks behind the source",
            )
        asked = None
        if source.kept_schemas():
            from yarrow.datastream.program.asked_source import AskedSource

            asked = AskedSource(source, name, output_type, strategy)
            source = asked.by_name(self._settings())
        form = self._form(source, name, output_type, strategy)
        made = self.graph_builder.source(
            name, blocking=declares_blocking(source), errors=source.errors, **form, **settings
        )
        if asked is not None:
            self._asked[made.id] = asked
        if source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED:
            self._unbounded[made.id] = name
        else:
            self._bounded[made.id] = source
        return DataStream(self, made)

    def operator_identified(self, operator: SpecTransformation) -> None:
        """Let a source read by the schemas that the snapshot has of its operator, whose id the program has given.

        Raises InvalidProgramError if operators behind the source were made for rows of another type.
        """
        asked = self._asked.get(operator.id)
        source = None if asked is None else asked.by_id(operator, self._settings())
        if asked is None or source is None:
            return
        form = self._form(source, operator.name, asked.output_type, asked.strategy)
        asked.check_form(operator, form)
        for part, value in form.items():
            setattr(operator, part, value)
        if operator.id in self._bounded:
            self._bounded[operator.id] = source

    def _form(
        self,
        source: Source[Any, Any],
        name: str,
        output_type: TypeInformation | None,
        strategy: WatermarkStrategy | None,
    ) -> dict[str, Any]:
        """Return what the transformation of a source has of it."""
        form: dict[str, Any] = {"adds_columns": source.adds_columns}
        schema = source.produced_schema()
        scan = None
        if schema is not None:
            from yarrow.datastream.program.arrow_schemas import schema_bytes

            encoded = schema_bytes(schema)
            form |= {"output_kind": StreamKind.COLUMNAR, "output_schema": encoded}
            if source.scanned_format is not None:
                scan = ColumnScan(source.scanned_format, encoded, source.scanned_bytes())
        else:
            form["output_type"] = output_type or declared(source.produced_type())
        form["spec"] = SourceOperator(
            source=self.graph_builder.pickle(source, name, "source"),
            watermark_strategy=self._pickled_strategy(strategy, name),
            bounded=source.boundedness is Boundedness.BOUNDED,
            history=self._pickled_history(source, name),
            scan=scan,
            can_narrow=source.can_narrow,
            declared_replay=source.replay,
            knows_bytes=source.counts_bytes,
        )
        return form

    def _pickled_history(self, source: Source[Any, Any], name: str) -> bytes | None:
        if source.boundedness is Boundedness.BOUNDED:
            return None
        history = source.history()
        return None if history is None else self.graph_builder.pickle(history, name, "source")

    def _pickled_strategy(self, strategy: WatermarkStrategy | None, name: str) -> bytes | None:
        if strategy is None or not (strategy.makes_watermarks or strategy.timestamp_assigner is not None):
            return None
        return self.graph_builder.pickle(strategy, name, "watermark strategy")

    # Execution

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Execute the program and wait for its end.

        Raises JobExecutionError, which begins with the user's own traceback if a function failed. After a cancelled job
        it raises KeyboardInterrupt for Ctrl-C, and BrokenPipeError if nobody reads this program's output.
        """
        try:
            return wait_for_job(self._submit(job_name))
        except (YarrowError, ConfigError, BrokenPipeError) as error:
            # What is wrong is in the program, or with the cluster, and not on our way to finding it: the message says
            # it all, of a job that failed with the traceback of the user's function.
            raise error.with_traceback(None) from None

    def execute_async(self, job_name: str | None = DEFAULT_JOB_NAME) -> JobClient:
        """Execute the program and return at once with a handle on the job."""
        try:
            return self._submit(job_name)
        except (YarrowError, ConfigError) as error:
            raise error.with_traceback(None) from None

    def get_execution_plan(self) -> str:
        """Return the program's operators as JSON, in Flink's shape. Nothing is executed."""
        return json.dumps(execution_plan(self.get_stream_graph(clear_transformations=False)), indent=2)

    def get_stream_graph(self, clear_transformations: bool = True) -> StreamGraph:
        """Return the operators and edges; with `clear_transformations` the next job begins empty.

        Raises InvalidProgramError, naming operators, for a program that cannot run.
        """
        settings = self._settings()
        graph = generate_stream_graph(self.graph_builder.roots, self._graph_settings(settings))
        if any(node.spec.opens_loop is not None for node in graph.nodes.values()):
            # Imported late: most programs have no loop.
            from yarrow.runtime.graph.loops.loop_rules import check_loops

            check_loops(graph)
        changed_as_wanted(graph)
        settle_claims(graph, settings)
        if clear_transformations:
            self.graph_builder.clear()
        return graph

    def get_job_graph(self, job_name: str | None = None, clear_transformations: bool = True) -> JobGraph:
        """Return the JobGraph that `execute` would submit, with a new job id."""
        settings = self._settings()
        validate(settings)
        name = job_name or settings.get(pipeline_options.NAME) or DEFAULT_JOB_NAME
        graph = self.get_stream_graph(clear_transformations)
        job_graph = in_mode(
            generate_job_graph(
                graph,
                job_id=JobID(self._ids.hex_id()),
                name=name,
                user_code=self._user_code(settings),
                configuration=self._configuration.to_dict(),
            ),
            settings.get(execution_options.RUNTIME_MODE),
            lambda: self._batch_runner(graph, settings),
        )
        if job_graph.job_type is JobType.STREAMING:
            refuse_endless_results(graph, self._unbounded)
        else:
            tell_unheeded_in_batch(settings)
        for made in graph.nodes:
            # It may hold a whole collection.
            self._bounded.pop(made, None)
        return job_graph

    def _batch_runner(self, graph: StreamGraph, settings: Settings) -> RunnerChoice:
        """Who runs the job if it runs in BATCH."""
        # A stream's client does without.
        from yarrow.runtime.graph.batch.batch_runner import InputSize, runner_of

        mode = settings.get(execution_options.RUNTIME_MODE)
        inputs: list[InputSize] = []
        if mode is execution_options.RuntimeMode.AUTOMATIC:
            for made, node in graph.nodes.items():
                if not node.in_edges:
                    source = self._bounded.pop(made, None)
                    if source is not None:
                        self._sizes[made] = source.estimated_bytes()
                    known = node.input_bytes
                    inputs.append(InputSize(node.name, self._sizes.get(made) if known is None else known))
        return runner_of(mode, inputs, settings.get(execution_options.BATCH_LOCAL_MAX_SIZE).bytes)

    def _user_code(self, settings: Settings) -> UserCode:
        code = self.graph_builder.packer.user_code()
        added = settings.get(python_options.PYTHON_PATH)
        if added is None:
            return code
        return msgspec.structs.replace(code, python_path=(*added.split(os.pathsep), *code.python_path))

    def in_default_file_system(self, connector: C) -> C:
        """Return a source or sink whose plain paths lie in the file system of fs.default-scheme.

        It reaches HDFS by this environment's configuration and login from then on.
        """
        # Imported here, so that a program without sources and sinks knows nothing of HDFS.
        from yarrow.runtime.fs.hdfs_settings import HdfsSettings, offer_hdfs_settings

        settings = self._settings()
        offer_hdfs_settings(HdfsSettings.of(settings, is_client=True))
        default = settings.get(cluster_options.DEFAULT_SCHEME)
        return connector if default is None else cast("C", connector.with_default_scheme(default))

    def new_collect_id(self) -> str:
        """Return a name for the results of one execute_and_collect."""
        return self._ids.hex_id()

    def close(self) -> None:
        """Do nothing: an environment holds nothing open."""

    def _submit(self, job_name: str | None) -> JobClient:
        settings = self._settings()
        files = self._files.all(settings)
        job_graph = self.get_job_graph(job_name)
        log_claims(job_graph)
        executor = executor_for(settings.get(execution_options.TARGET) or LOCAL_TARGET)
        if not only_plans(executor):
            _refuse_what_cannot_run(settings)
            if settings.get(batch_options.HISTORY_UNTIL) is not None:
                executor = with_history(executor)
            self._check_outputs()
        return executor.execute(job_graph, self._configuration.to_dict(), files)

    def _check_outputs(self) -> None:
        """Refuse places to which the job cannot write. The program is checked by now, and submitted next."""

    def _graph_settings(self, settings: Settings) -> GraphSettings:
        max_parallelism = settings.get(pipeline_options.MAX_PARALLELISM)
        blocking = settings.get(execution_options.EXCHANGE_MODE) is execution_options.ExchangeMode.BLOCKING
        return GraphSettings(
            max_parallelism=None if max_parallelism == -1 else max_parallelism,
            buffer_timeout_ms=self.get_buffer_timeout(),
            chaining_enabled=self.is_chaining_enabled(),
            chain_different_max_parallelism=(
                self.is_chaining_of_operators_with_different_max_parallelism_enabled()
            ),
            exchange=ResultPartitionType.BLOCKING if blocking else ResultPartitionType.PIPELINED,
            auto_generate_uids=self._config.has_auto_generated_uids_enabled(),
            generic_types=not self._config.has_generic_types_disabled(),
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "a StreamExecutionEnvironment cannot be used inside a function: it exists on the client only"
        )


def _refuse_what_cannot_run(settings: Settings) -> None:
    """Refuse settings that this version cannot carry out."""
    blocking = settings.get(execution_options.EXCHANGE_MODE) is execution_options.ExchangeMode.BLOCKING
    interval = settings.get(checkpointing_options.INTERVAL)
    if blocking and interval is not None and interval.nanos > 0:
        raise UnsupportedFeatureError(
            "execution.exchange-mode is blocking and checkpoints are on, but no barrier passes a result that"
            " is read when it is complete. Leave the interval out, so that failed tasks start again from the"
            " last complete result. Or set the mode to pipelined."
        )
