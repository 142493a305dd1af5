"""HistoryExecutor: reads a program's history in batch mode, then starts its stream from the savepoint of that.

Owner: the thread that calls execute, which waits for the end of history. Both jobs are made of one JobGraph, so that
the stream finds the state of each operator. Must not start anything for a program that cannot be read so.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from yarrow.client.history_checks import check_history
from yarrow.common.job_client import JobClient
from yarrow.datastream.program.job_waiting import wait_for_job
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError, YarrowError
from yarrow.runtime.common.ids import IdFactory, JobID, RandomIdFactory
from yarrow.runtime.common.paths import join, scheme_of
from yarrow.runtime.config.options import batch, checkpointing, execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch import batch_rules
from yarrow.runtime.graph.batch.batch_plan_text import with_batch_plan
from yarrow.runtime.graph.batch.batch_planner import plan
from yarrow.runtime.graph.batch.history import history_job, stream_behind
from yarrow.runtime.graph.executor import LocalFile, PipelineExecutor
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.snapshot.snapshot_folders import SAVEPOINT_PREFIX
from yarrow.runtime.snapshot.worker_file import STATE_FILE_PREFIX
from yarrow.runtime.snapshot.writing.savepoint_folder import ForeignFiles


class HistoryExecutor:
    """Runs each job of a program twice: over its history, then as a stream."""

    def __init__(self, executor: PipelineExecutor, ids: IdFactory | None = None) -> None:
        """`executor` runs both."""
        self._executor = executor
        self._ids = ids or RandomIdFactory()

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        """Returns when the stream was accepted; without a stream, when the job of history was.

        Raises HistoryRefusedError and BatchRefusedError, with operator and remedy, before anything starts; and the
        error of the job of history.
        """
        settings = Settings(configuration, "the program")
        _check_settings(job_graph, settings)
        drops_rows = settings.get(batch.HISTORY_OUTPUT) is batch.HistoryOutput.DROP
        check_history(job_graph, settings, drops_rows=drops_rows)
        path = self._path(job_graph, settings)
        history = history_job(
            job_graph, JobID(self._ids.hex_id()), path, job_graph.configuration, drops_rows=drops_rows
        )
        batch_rules.check(history)
        _tell_of_unfinished(path)
        if history.plan:
            history = msgspec.structs.replace(history, plan=with_batch_plan(history.plan, plan(history)))
        awaited = {**history.configuration, execution.ATTACHED.key: "true"}
        client = self._executor.execute(history, awaited, files)
        if not settings.get(batch.HISTORY_START_STREAM):
            return client
        wait_for_job(client)
        print(f"History of {job_graph.name!r} is in the savepoint {path}", file=sys.stderr, flush=True)
        stream = stream_behind(job_graph, path)
        return self._executor.execute(stream, {**configuration, **stream.configuration}, files)

    def _path(self, job_graph: JobGraph, settings: Settings) -> str:
        """The folder of the savepoint."""
        path = settings.get(batch.HISTORY_SAVEPOINT_PATH)
        if path is None:
            parent = settings.get(checkpointing.SAVEPOINT_DIRECTORY)
            if parent is None:
                raise InvalidProgramError(
                    f"{batch.HISTORY_UNTIL.key} is set, but no option says where the savepoint of history goes: set"
                    f" {checkpointing.SAVEPOINT_DIRECTORY.key}, or {batch.HISTORY_SAVEPOINT_PATH.key} to a new folder"
                )
            path = join(parent, f"{SAVEPOINT_PREFIX}{job_graph.job_id[:6]}-{self._ids.hex_id()[-12:]}")
        return path if scheme_of(path) != "file" or "://" in path else str(Path(path).absolute())


def _tell_of_unfinished(path: str) -> None:
    """Names what other jobs have left in the folder: nobody but the user knows whether they still run."""
    with contextlib.suppress(OSError, YarrowError):
        for writing in ForeignFiles.writings_in(path):
            print(
                f"{path} holds a savepoint of another job that is not complete. If that job does not run, remove"
                f" {writing.marker} and the files {STATE_FILE_PREFIX}{writing.writing}*",
                file=sys.stderr,
                flush=True,
            )


def _check_settings(job_graph: JobGraph, settings: Settings) -> None:
    if job_graph.job_type is not JobType.STREAMING:
        raise UnsupportedFeatureError(
            f"{batch.HISTORY_UNTIL.key} starts a stream behind the history of the job, but {execution.RUNTIME_MODE.key}"
            f" is {settings.get(execution.RUNTIME_MODE).value}: set it to STREAMING, or leave it out"
        )
    if settings.get(execution.SAVEPOINT_PATH) is not None:
        raise UnsupportedFeatureError(
            f"{batch.HISTORY_UNTIL.key} begins a job with its history, and {execution.SAVEPOINT_PATH.key} (-s) with a"
            " savepoint: set one of them"
        )
