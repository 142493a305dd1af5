"""Runs the job of a bounded program in both modes, here, and compares what reaches its sinks.

Owner: the main thread. The program's main() has run, up to its first job. Its sinks never run: what reaches them is
kept in a temporary folder, which is removed at the end.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from yarrow.cli.verification.captured_graph import (
    CapturedSink,
    Place,
    captured,
    operator_at,
    settings_of,
    sinks_of,
    with_functions,
)
from yarrow.cli.verification.captured_rows import entries_in
from yarrow.cli.verification.causes import RunFacts, causes_of, examples_in, reduces_of, with_checks
from yarrow.cli.verification.comparison import SinkComparison, compare
from yarrow.cli.verification.keyed_results import KeyedResults
from yarrow.cli.verification.later_jobs import later_job
from yarrow.cli.verification.report import ModesReport, SinkReport, text_of
from yarrow.client.errors import CommandError
from yarrow.client.targets import LOCAL
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.datastream.program.job_waiting import wait_for_job
from yarrow.embedded.embedded_executor import EmbeddedExecutor
from yarrow.runtime.common.errors import JobExecutionError
from yarrow.runtime.common.ids import JobID, RandomIdFactory
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch import batch_rules
from yarrow.runtime.graph.executor import LocalFile, ProgramAborted
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType

_log = logging.getLogger(__name__)
#: Ends the names of runs that only explain a difference.
_AGAIN = " AGAIN"


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
    if not planned.is_stream:
        raise CommandError(
            f"the job '{planned.job_graph.name}' is one of a DataSet program. It means nothing as a stream, so verify"
            " has no second mode to compare. Execute it with `yarrow run`, or write it with the DataStream API."
        )
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


class _Explanation(NamedTuple):
    """What further runs have told about a difference."""

    #: By reduce function, an example in which the order of records counts.
    examples: dict[Place, str]
    #: The results of process functions on keyed input, compared by key.
    by_key: dict[Place, SinkComparison]

    def of(self, sink: CapturedSink, found: SinkComparison) -> SinkComparison:
        """The difference by key, where these runs have shown it again; else `found`."""
        by_key = None if sink.keyed_function is None else self.by_key.get(sink.keyed_function)
        if by_key is None or by_key.first is None:
            return found
        return replace(by_key, rows=found.rows)


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
        """Runs the job in both modes, and again where that tells more about a difference."""
        streaming = self._run(JobType.STREAMING, self._graph, JobType.STREAMING.name)
        batch = self._run(JobType.BATCH, self._graph, JobType.BATCH.name)
        comparisons = {
            sink: self._compared(str(at), rows_are_keys=not sink.key.is_known)
            for at, sink in enumerate(self._sinks)
        }
        explained = self._explained([sink for sink, found in comparisons.items() if not found.is_equal])
        reports = []
        for sink, found in comparisons.items():
            causes: Sequence[str] = ()
            if found.first is not None:
                found = explained.of(sink, found)
                assert found.first is not None
                causes = causes_of(
                    self._graph, sink.place, found.first, streaming.facts, batch.facts, explained.examples
                )
            reports.append(SinkReport(sink.name, found, causes, sink.key.selector is not None))
        return ModesReport(self._graph.name, batch.facts.spark_application, reports)

    def _compared(self, name: str, *, rows_are_keys: bool, again: str = "") -> SinkComparison:
        streaming, batch = (
            entries_in(self._folder / f"{mode.name}{again}" / name)
            for mode in (JobType.STREAMING, JobType.BATCH)
        )
        return compare(streaming, batch, rows_are_keys=rows_are_keys)

    def _explained(self, differing: Sequence[CapturedSink]) -> _Explanation:
        """Runs the job again, if functions of users are upstream of the sinks that can tell more.

        A run that fails explains nothing: the functions are called more often than the program does.
        """
        reduces = list(dict.fromkeys(p for sink in differing for p in reduces_of(self._graph, sink.place)))
        keyed = [sink.keyed_function for sink in differing if sink.keyed_function is not None]
        found = _Explanation({}, {})
        try:
            if reduces or keyed:
                checked = self._keeping_results(with_checks(self._graph, reduces), JobType.STREAMING, keyed)
                run = self._run(JobType.STREAMING, checked, f"{JobType.STREAMING.name}{_AGAIN}")
                found.examples.update(examples_in(run.result.get_all_accumulator_results(), reduces))
            if keyed:
                keeping = self._keeping_results(self._graph, JobType.BATCH, keyed)
                self._run(JobType.BATCH, keeping, f"{JobType.BATCH.name}{_AGAIN}")
                for place in keyed:
                    found.by_key[place] = self._compared(_named(place), rows_are_keys=False, again=_AGAIN)
        except VerifiedRunError as error:
            _log.info("a run that would explain a difference has failed: %s", error)
        return found

    def _keeping_results(self, graph: JobGraph, mode: JobType, places: Sequence[Place]) -> JobGraph:
        """The graph whose process functions at these places keep their results by key."""
        functions: dict[Place, object] = {}
        for place in places:
            folder = self._folder / f"{mode.name}{_AGAIN}" / _named(place)
            folder.mkdir(parents=True, exist_ok=True)
            operator = operator_at(graph, place)
            spec: Any = operator.spec
            functions[place] = KeyedResults(spec.function, operator.name, str(folder))
        return with_functions(graph, functions)

    def _run(self, mode: JobType, graph: JobGraph, name: str) -> _Run:
        folders = [self._folder / name / str(at) for at in range(len(self._sinks))]
        for each in folders:
            each.mkdir(parents=True)
        graph = captured(graph, mode, self._sinks, folders)
        graph = msgspec.structs.replace(graph, job_id=JobID(RandomIdFactory().hex_id()))
        configuration = settings_of(self._config.to_dict(redact=False), mode, rolling=False)
        # Not `execute`: it would take what is left out here from the configuration file again.
        config = Settings(configuration, "the program").overlay(graph.configuration, "the program")
        client = EmbeddedExecutor().run(graph, config, self._files)
        try:
            result = wait_for_job(client)
        except JobExecutionError as error:
            raise VerifiedRunError(f"the job '{graph.name}' failed in {mode.name}:\n{error}") from None
        return _Run(result, RunFacts.of(graph, client.get_job_details().result()))


def _named(place: Place) -> str:
    return f"{place.vertex}.{place.operator}"
