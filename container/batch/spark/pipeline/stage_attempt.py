"""StageAttempt: one attempt of a stage: reads its inputs, calls its function, writes, and moves outputs into place.

Owner: a thread of its own. Each attempt has a session of its own, so that stages side by side share no settings, views
and functions. Outputs are moved only when the master has stored that they will be. Must not start another stage.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import cloudpickle
from pyspark.sql import DataFrame, DataFrameReader, SparkSession

from yarrow.common.pipelines.column_text import quoted
from yarrow.common.pipelines.stage import Stage
from yarrow.common.pipelines.stage_data import AnyData, IfExists, StageTable, TableFormat
from yarrow.container.batch.spark.pipeline import output_folders
from yarrow.container.batch.spark.pipeline.output_folders import OutputLostError
from yarrow.container.batch.spark.pipeline.stage_disks import StageDisks, StageOutput
from yarrow.container.batch.spark.pipeline.stage_failures import StageOutputError, is_of_spark, not_written
from yarrow.container.batch.spark.pipeline.stage_results import tables_of
from yarrow.container.batch.spark.tasks.late_tasks import tasks_have_ended
from yarrow.runtime.common.errors import FileSystemError, YarrowError
from yarrow.runtime.common.ids import JobID, JobVertexID
from yarrow.runtime.common.paths import join
from yarrow.runtime.config.options import batch
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.graph.batch.pipeline_plan import path_of
from yarrow.runtime.graph.batch.pipeline_storage import OutputExistsError, missing_input
from yarrow.runtime.rpc.batch_gateways import BatchRunError
from yarrow.runtime.rpc.messages import OutputMove

_log = logging.getLogger(__name__)
#: Settings of Spark for stages. A plan has others, since its rows are chunks and its partitions are fixed.
_SQL_SETTINGS: Final = {
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.codegen.wholeStage": "true",
    "spark.sql.codegen.factoryMode": "FALLBACK",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "10000",
}
#: Spark's option by which a path with *, ?, [ or { is that path, and no pattern.
_GLOBS: Final = "__globPaths__"


class StageCancelledError(YarrowError):
    """The master has ended the run under a stage: nobody commits what it has written."""


class StageInputError(YarrowError):
    """Files that a stage reads are not as declared; the message names stage, input and path."""


class LostInputsError(YarrowError):
    """Temporary outputs of other stages are gone."""

    def __init__(self, message: str, stages: tuple[JobVertexID, ...]) -> None:
        super().__init__(message)
        #: The stages that have left them.
        self.stages = stages


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlaces:
    """Where the data of one pipeline lies."""

    job_id: JobID
    #: The folder of temporary outputs.
    temporary: str
    #: The stage that leaves each data; data that was there before is missing.
    producers: Mapping[str, JobVertexID]

    def path(self, data: AnyData, stage: Stage) -> str:
        """Where the data is, or is to be."""
        return path_of(data, stage) or join(self.temporary, data.name)

    def move(self, output: AnyData, stage: Stage, attempt: str, *, is_repeated: bool) -> OutputMove:
        """How an output gets into place."""
        target = self.path(output, stage)
        replaces = not output.path or is_repeated or output.if_exists is IfExists.REPLACE
        return OutputMove(
            source=output_folders.hidden_folder(target, self.job_id, attempt),
            target=target,
            replaces=replaces,
            is_temporary=not output.path,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class StageAttempt:
    """One attempt; `run` returns its metrics."""

    stage: Stage
    places: StagePlaces
    #: Names its folders: no other attempt of the job has it.
    attempt: str
    is_repeated: bool
    #: Keys of Spark that the program sets: they stay as they are.
    own_settings: Mapping[str, str]
    #: Returns when the master has stored the moves. Raises BatchRunError if the attempt is over.
    begin_commit: Callable[[Sequence[OutputMove]], None]
    #: The group of the attempt's Spark jobs.
    job_group: str
    #: The full disk of Spark's own files by the text of its error, and the remedy.
    disk_of_spark: Callable[[str], str]
    _moves: list[OutputMove] = field(default_factory=list)
    _may_remove: bool = True
    _disks: StageDisks = field(init=False)

    def run(self, session: SparkSession) -> dict[str, float]:
        """Runs the attempt; leaves nothing if it fails.

        Raises what the function raises, StageResultError, MissingInputError, StageInputError, LostInputsError,
        StageOutputError and OutputExistsError.
        """
        own = session.newSession()
        for key, value in _SQL_SETTINGS.items():
            if key not in self.own_settings:
                own.conf.set(key, value)
        stage, places = self.stage, self.places
        moves = {
            output.name: places.move(output, stage, self.attempt, is_repeated=self.is_repeated)
            for output in stage.outputs
        }
        self._moves = list(moves.values())
        told = [_told(output, moves[output.name]) for output in stage.outputs]
        self._disks = StageDisks(told, self.disk_of_spark)
        self._check_inputs()
        try:
            for output in stage.outputs:
                with self._storage(output, moves[output.name]):
                    output_folders.prepare(moves[output.name], places.job_id)
            returned = self._call(own, moves)
            metrics = self._write(tables_of(stage, returned), moves)
            if self._moves:
                self._commit()
        finally:
            if self._may_remove:
                if self._moves and not tasks_have_ended(session, self.job_group):
                    _log.warning("tasks of stage %r still run: files of its outputs may be left", stage.name)
                output_folders.remove(self._moves)
        return metrics

    def abandon(self) -> None:
        """Removes what the attempt has written, while its function still runs in another thread."""
        if self._may_remove:
            output_folders.remove(self._moves)

    def _commit(self) -> None:
        # From here on the outputs may belong to the job, whatever becomes of this attempt.
        self._may_remove = False
        try:
            self.begin_commit(self._moves)
            commit(self.stage, self._moves)
        except (BatchRunError, StageCancelledError, StageOutputError, OutputExistsError, OutputLostError):
            # The master refuses them, or the job fails.
            self._may_remove = True
            raise

    def _check_inputs(self) -> None:
        lost: dict[JobVertexID, str] = {}
        for data in self.stage.inputs:
            path = self.places.path(data, self.stage)
            if exists(file_system_for(path), path):
                continue
            producer = self.places.producers.get(data.name)
            if producer is None:
                raise missing_input(self.stage, data, path)
            lost[producer] = f"{data.name!r} ({path})"
        if lost:
            raise LostInputsError(
                f"Stage {self.stage.name!r}: its input {next(iter(lost.values()))} is gone, though another stage has"
                f" left it. Name a folder that all hosts share ({batch.PIPELINE_DIRECTORY.key})",
                tuple(lost),
            )

    def _call(self, session: SparkSession, moves: Mapping[str, OutputMove]) -> Any:
        stage = self.stage
        arguments: dict[str, Any] = {name: stage.parameters[name] for name in stage.arguments}
        for data in stage.inputs:
            path = self.places.path(data, stage)
            if isinstance(data, StageTable):
                if data.name not in self.places.producers:
                    check_columns(session, stage, data, path)
                arguments[data.name] = read_table(session, data, path)
            else:
                arguments[data.name] = path
        for output in stage.outputs:
            if not output.is_table:
                arguments[output.name] = moves[output.name].source
        try:
            return cloudpickle.loads(stage.function)(session, **arguments)
        except Exception as error:
            if full := self._disks.full_in_function(error):
                error.add_note(full)
            raise

    def _write(self, tables: Mapping[str, DataFrame], moves: Mapping[str, OutputMove]) -> dict[str, float]:
        written = 0
        for output in self.stage.outputs:
            move = moves[output.name]
            with self._storage(output, move):
                if isinstance(output, StageTable):
                    write_table(tables[output.name], output, move.source)
                elif (lack := output_folders.lack_of(move.source)) is not None:
                    raise StageOutputError(
                        f"Stage {self.stage.name!r}: its function has {lack} {output.name!r}. It gets a path as the"
                        f" argument {output.name!r}, makes a folder there, and writes files into it"
                    )
                written += output_folders.size_of(move.source)
        return {"numBytesOut": float(written)}

    @contextlib.contextmanager
    def _storage(self, output: AnyData, move: OutputMove) -> Iterator[None]:
        """A block whose errors of storage and Spark name the output."""
        try:
            yield
        except YarrowError as error:
            if isinstance(error, FileSystemError):
                raise self._not_written(output, move, error) from None
            raise
        except Exception as error:
            if isinstance(error, OSError) or is_of_spark(error):
                told = self._not_written(output, move, error)
                raise told from (None if told is not error else error.__cause__)
            raise

    def _not_written(self, output: AnyData, move: OutputMove, error: Exception) -> BaseException:
        _log.error("an output of stage %r was not written", self.stage.name, exc_info=error)
        return not_written(self.stage.name, _told(output, move), error, self._disks)


def _told(output: AnyData, move: OutputMove) -> StageOutput:
    return StageOutput(output.name, move.target, move.source, move.is_temporary)


def commit(stage: Stage, moves: Sequence[OutputMove]) -> None:
    """Moves outputs into place. Raises StageOutputError, OutputLostError and OutputExistsError."""
    try:
        output_folders.commit(moves)
    except (OSError, FileSystemError) as error:
        targets = ", ".join(move.target for move in moves)
        raise StageOutputError(
            f"Stage {stage.name!r}: its outputs were written, and not moved to {targets}: {error}"
        ) from None


def read_table(session: SparkSession, table: StageTable, path: str) -> DataFrame:
    """The table at a path, as declared."""
    frame = _reader(session, table).schema(table.schema).load(output_folders.for_spark(path))
    # Spark puts the columns of folders behind the others.
    return frame.select(*(quoted(column.name) for column in table.columns))


def _reader(session: SparkSession, table: StageTable) -> DataFrameReader:
    return session.read.format(table.format).options(**{_GLOBS: "false", **table.options})


def check_columns(session: SparkSession, stage: Stage, table: StageTable, path: str) -> None:
    """Raises StageInputError for a column that no file has: Spark reads one as null, also where its name is misspelt.

    Texts have no columns that could be looked at.
    """
    if table.format not in (TableFormat.PARQUET, TableFormat.ORC):
        return
    reader = _reader(session, table)
    # The first look reads one file, the second one all of them.
    for merges in ("false", "true"):
        try:
            found = reader.option("mergeSchema", merges).load(output_folders.for_spark(path)).schema
        except Exception as error:
            if not is_of_spark(error):
                raise
            return  # no files, some that cannot be read, or columns of several types: told when they are read
        names = {field.name.lower() for field in found}
        missing = [column for column in table.columns if column.name.lower() not in names]
        if not missing:
            return
    has = ", ".join(f"{quoted(field.name)} {field.dataType.simpleString()}" for field in found)
    raise StageInputError(
        f"Stage {stage.name!r}: its input {table.name!r} has no column {missing[0]}. The files at {path} have: {has}."
        " Name one of these columns, or take it out of the schema"
    )


def write_table(frame: DataFrame, table: StageTable, folder: str) -> None:
    """Writes all of the DataFrame into a folder that does not exist."""
    writer = frame.write.format(table.format).options(**table.options).mode("errorifexists")
    if table.partition_by:
        writer = writer.partitionBy(*table.partition_by)
    writer.save(output_folders.for_spark(folder))
