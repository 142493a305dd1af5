"""Runs the job of a bounded program in both modes, here, and compares what reaches its sinks.

Owner: the main thread. The program's main() has run, up to its first job. Its sinks never run: what reaches them is
kept in a temporary folder, which is removed at the end.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from yarrow.cli.verification.captured_graph import (
    CapturedSink,
    Place,
    captured,
    settings_of,
    sinks_of,
)
from yarrow.cli.verification.captured_rows import entries_in
from yarrow.cli.verification.causes import RunFacts, causes_of, examples_in, reduces_of, with_checks
from yarrow.cli.verification.comparison import SinkComparison, compare
from yarrow.cli.verification.later_jobs import later_job
from yarrow.cli.verification.report import ModesReport, SinkReport, text_of
from yarrow.client.errors import CommandError
from yarrow.client.targets import LOCAL
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.datastream.job_waiting import wait_for_job
from yarrow.embedded.embedded_executor import EmbeddedExecutor
from yarrow.runtime.common.errors import JobExecutionError
from yarrow.runtime.common.ids import JobID, RandomIdFactory
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph import batch_rules
from yarrow.runtime.graph.executor import LocalFile, ProgramAborted
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType


class VerifiedRunError(CommandError):
    """The job has failed in one of the modes, so there is nothing to compare."""


def check_target(config: Settings) -> None:
    """Raises CommandError if the program would run elsewhere."""
    target = config.get(execution.TARGET)
    if target not in (None, LOCAL):
        raise CommandError(
            f"verify runs both modes here, and {execution.TARGET.key} is {target}: set it to {LOCAL} with"
            f" -D{execution.TARGET.key}={LOCAL}."
        )


def verify(planned: ProgramAborted, config: Settings, *, first_job_only: bool = False) -> bool:
    """Prints the comparison of a program's job in both modes; True if they are equal.

    `first_job_only`: what the program executes behind its first job does not matter. Raises CommandError for a program
    that cannot be compared, and VerifiedRunError with mode and cause if the job fails.
    """
    if not first_job_only:
        _refuse_later_jobs(planned)
    batch_rules.check(planned.job_graph)
    with tempfile.TemporaryDirectory(prefix="yarrow-verify-") as folder:
        report = _Verification(planned, config, Path(folder)).report()
    print(text_of(report), flush=True)
    return report.is_equal


def _refuse_later_jobs(planned: ProgramAborted) -> None:
    call = later_job(planned.__traceback__)
    if call is not None:
        raise CommandError(
            f"verify compares programs of one job, and {call.file}, line {call.line}, calls {call.method} behind the"
            f" job '{planned.job_graph.name}'. Give each job a program of its own, or compare the first one alone with"
            " --first-job."
        )


class _Run(NamedTuple):
    """One run of the job."""

    result: JobExecutionResult
    facts: RunFacts


class _Verification:
    """The runs of one job, and what they have left in a folder."""

    def __init__(self, planned: ProgramAborted, config: Settings, folder: Path) -> None:
        """Raises CommandError for a job without sinks."""
        self._graph = planned.job_graph
        self._files: Sequence[LocalFile] = planned.files
        self._config = config
        self._folder = folder
        self._sinks = sinks_of(self._graph)
        if not self._sinks:
            raise CommandError(
                f"the job '{self._graph.name}' has no sink, so there are no rows to compare: end a stream with print,"
                " sink_to or execute_and_collect."
            )

    def report(self) -> ModesReport:
        """Runs the job in both modes, and once more where a difference may come from a user's reduce."""
        streaming = self._run(JobType.STREAMING)
        batch = self._run(JobType.BATCH)
        comparisons = [self._compared(at, sink) for at, sink in enumerate(self._sinks)]
        examples = self._examples(
            [sink for sink, found in zip(self._sinks, comparisons, strict=True) if not found.is_equal]
        )
        reports = []
        for sink, found in zip(self._sinks, comparisons, strict=True):
            causes: Sequence[str] = ()
            if found.first is not None:
                causes = causes_of(
                    self._graph, sink.place, found.first, streaming.facts, batch.facts, examples
                )
            reports.append(SinkReport(sink.name, found, causes))
        return ModesReport(self._graph.name, batch.facts.spark_application, reports)

    def _compared(self, at: int, sink: CapturedSink) -> SinkComparison:
        streaming, batch = (
            entries_in(self._folder_of(mode.name, at)) for mode in (JobType.STREAMING, JobType.BATCH)
        )
        return compare(streaming, batch, rows_are_keys=not sink.key.is_known)

    def _examples(self, differing: Sequence[CapturedSink]) -> dict[Place, str]:
        places = list(dict.fromkeys(p for sink in differing for p in reduces_of(self._graph, sink.place)))
        if not places:
            return {}
        run = self._run(JobType.STREAMING, with_checks(self._graph, places), "CHECK")
        return examples_in(run.result.get_all_accumulator_results(), places)

    def _folder_of(self, run: str, at: int) -> Path:
        return self._folder / run / str(at)

    def _run(self, mode: JobType, graph: JobGraph | None = None, name: str = "") -> _Run:
        folders = [self._folder_of(name or mode.name, at) for at in range(len(self._sinks))]
        for each in folders:
            each.mkdir(parents=True)
        graph = captured(graph or self._graph, mode, self._sinks, folders)
        graph = msgspec.structs.replace(graph, job_id=JobID(RandomIdFactory().hex_id()))
        configuration = settings_of(self._config.to_dict(redact=False), mode, rolling=False)
        client = EmbeddedExecutor().execute(graph, {**configuration, **graph.configuration}, self._files)
        try:
            result = wait_for_job(client)
        except JobExecutionError as error:
            raise VerifiedRunError(f"the job '{graph.name}' failed in {mode.name}:\n{error}") from None
        return _Run(result, RunFacts.of(graph, client.get_job_details().result()))
