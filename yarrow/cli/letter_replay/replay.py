"""LetterReplay: one run of a repaired program with dead letters as a further input, and what became of them.

Owner: the main thread. Letters are read and checked before the program's job is submitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from yarrow.cli.letter_replay.letter_input import ChosenLetters, LetterFiles, LetterInput, chosen
from yarrow.cli.letter_replay.replayed_graph import feed, operators_by_uid, silence, silent_ids
from yarrow.cli.letter_replay.target_checks import found_targets
from yarrow.client.errors import CommandError
from yarrow.common.job_client import JobClient
from yarrow.common.values.rate_limit import UNLIMITED, checked_limit
from yarrow.datastream.connectors.letter_replay.letter_counts import REFUSED, REPLAYED, SHOWN
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.executor import (
    DetachedJobClient,
    LocalFile,
    PipelineExecutor,
    change_graphs_of_this_process,
)
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.graph.stream_graph import StreamGraph
from yarrow.runtime.snapshot.opening import open_snapshot

#: Exit status of a run that has ended, in which letters were refused again or could not be replayed.
LEFT_OVER = 2


class ReplaySettings(NamedTuple):
    """The settings of a replay, from the flags of the command."""

    #: The operators whose letters are replayed; () = all.
    uids: Sequence[str] = ()
    #: The user trusts all who can write the letters, so that the job reads pickles in them.
    trusts_pickles: bool = False
    #: Most letters a second for each operator; None = no limit.
    rows_per_second: int | None = None
    #: The properties of Kafka's client, if letters lie in a topic.
    kafka_properties: str | None = None


EVERYTHING = ReplaySettings()


class LetterReplay:
    """The letters, the run, and its report."""

    def __init__(
        self, letters: ChosenLetters, restored: frozenset[OperatorID] | None, how: ReplaySettings
    ) -> None:
        """`restored`: the operators whose state the run begins with; None = it begins without state."""
        self._letters = letters
        self._restored = restored
        self._how = how
        self._client: JobClient | None = None
        self._is_silent = True

    @staticmethod
    def of(place: str, config: Settings, how: ReplaySettings = EVERYTHING) -> LetterReplay:
        """Read the letters of files, `topic:NAME` or `table:FOLDER`, and the metadata of the savepoint of `-s`.

        Raises CommandError and SnapshotError.
        """
        savepoint = config.get(execution.SAVEPOINT_PATH)
        letters = chosen(_input_at(place, config, how), how.uids)
        restored = None
        if savepoint is not None:
            states = open_snapshot(savepoint).metadata.operators
            restored = frozenset(state.operator_id for state in states)
        return LetterReplay(letters, restored, how)

    def begin(self) -> None:
        """Let the program's job have the letters; called before the program runs."""
        change_graphs_of_this_process(self.change)

    def executor_around(self, executor: PipelineExecutor) -> PipelineExecutor:
        """Return the executor that runs the first job of the program, and refuses others."""
        return _FirstJob(self, executor)

    def change(self, graph: StreamGraph) -> None:
        """Change the graph of the program. Raises CommandError for letters that it cannot take."""
        if self._client is not None:
            raise CommandError(
                "The program executes a second job, and dead letters belong to one. Give each job a program of its own."
            )
        ids = silent_ids(graph)
        operators = operators_by_uid(graph)
        targets = found_targets(self._letters, operators, trusts_pickles=self._how.trusts_pickles)
        restored = self._restored
        self._is_silent = restored is None or any(silent in restored for silent in ids.values())
        if self._is_silent:
            silence(graph, ids)
        limit = checked_limit(self._how.rows_per_second, None) if self._how.rows_per_second else UNLIMITED
        feed(graph, targets, self._letters.input, limit)

    def submitted(self, client: JobClient) -> None:
        """Take the client of the job."""
        self._client = client

    @property
    def restores(self) -> bool:
        """Whether the run begins with the state of a savepoint."""
        return self._restored is not None

    @property
    def is_submitted(self) -> bool:
        """Whether the program has executed its job."""
        return self._client is not None

    def report(self) -> int:
        """Wait for the job, print what became of the letters, and return the exit status.

        Raises CommandError if the program executes no job.
        """
        if self._client is None:
            raise CommandError("The program executes no job, so no dead letter was replayed.")
        if isinstance(self._client, DetachedJobClient):
            print("The job replays the dead letters; nobody waits for it, so nothing is counted here.")
            return 0
        totals = self._client.get_job_execution_result().result().get_all_accumulator_results()
        lines, left_over = _report_of(self._letters, totals, self._is_silent)
        print("\n".join(lines), flush=True)
        return LEFT_OVER if left_over else 0


def _input_at(place: str, config: Settings, how: ReplaySettings) -> LetterInput:
    if place.startswith("table:"):
        # Letters in lines do without Arrow.
        from yarrow.cli.letter_replay.letter_table_input import LetterTableInput

        return LetterTableInput(place.removeprefix("table:"), config)
    if not place.startswith("topic:"):
        return LetterFiles(place, config)
    # Letters in files do without Kafka.
    from yarrow.cli.letter_replay.letter_topic import LetterTopic

    return LetterTopic(place.removeprefix("topic:"), how.kafka_properties)


def _report_of(
    letters: ChosenLetters, totals: Mapping[str, Any], is_silent: bool
) -> tuple[Sequence[str], bool]:
    """Return the lines for people, and whether a letter is left over."""
    replayed, refused, shown = (_of_kind(totals, kind) for kind in (REPLAYED, REFUSED, SHOWN))
    lines = [
        f"Dead letters of {uid!r}: {replayed.get(uid, 0)} replayed, {refused.get(uid, 0)} refused again,"
        f" {shown.get(uid, 0)} skipped"
        for uid in sorted(letters.of_uids)
    ]
    lines += [
        f"New dead letters of {uid!r}: {number}"
        for uid, number in sorted(refused.items())
        if number and uid not in letters.of_uids
    ]
    if not is_silent and any(refused.values()):
        lines.append("Refused ones may be rows of the program's own sources, which ran too.")
    skipped = sum(shown.values()) + letters.left_out
    lines.append(
        f"Dead letters: {sum(replayed.values())} replayed, {sum(refused.values())} refused again, {skipped} skipped"
    )
    return lines, any(refused.values()) or any(shown.values())


def _of_kind(totals: Mapping[str, Any], kind: str) -> dict[str, int]:
    return {name.removeprefix(kind): int(value) for name, value in totals.items() if name.startswith(kind)}


class _FirstJob:
    """Passes one job on."""

    def __init__(self, replay: LetterReplay, executor: PipelineExecutor) -> None:
        self._replay = replay
        self._executor = executor

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        """Submit the job. Raises CommandError for one that runs in BATCH and would go on from a savepoint."""
        if job_graph.job_type is JobType.BATCH and self._replay.restores:
            raise CommandError(
                f"The job {job_graph.name!r} runs in BATCH, which goes on from no savepoint. Leave -s out: a killed run"
                f" has left no rows, so it begins again. Or set {execution.RUNTIME_MODE.key} to STREAMING."
            )
        client = self._executor.execute(job_graph, configuration, files)
        self._replay.submitted(client)
        return client
