"""What a restore would say of a savepoint and a program, without one: all that its master looks at before it deploys.

Owner: the main thread; nothing is read but metadata and the secret, unless functions are to be opened. Types of single
states are compared where the job registers them: no master knows them either.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from yarrow.runtime.config.options import execution, security
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.snapshot.assignment import assign
from yarrow.runtime.snapshot.errors import (
    SavepointMismatchError,
    SnapshotStorageError,
    UntrustedPickleError,
)
from yarrow.runtime.snapshot.handles import CheckpointMetadata
from yarrow.runtime.snapshot.opening import OpenedSnapshot, open_snapshot
from yarrow.runtime.snapshot.savepoint_check import (
    OperatorFinding,
    Outcome,
    check_savepoint,
    max_parallelism_of_savepoint,
    with_max_parallelism,
)
from yarrow.runtime.snapshot.snapshot_reader import SnapshotReader
from yarrow.runtime.snapshot.trust import SnapshotTrust, check_trust


@dataclass(frozen=True, slots=True)
class Answer:
    """What became of the questions."""

    opened: OpenedSnapshot
    findings: Sequence[OperatorFinding]
    #: What keeps the snapshot from being restored that is no matter of one operator.
    problems: tuple[str, ...] = ()
    #: What could not be looked at here.
    notes: tuple[str, ...] = ()
    #: Functions were opened, what sources and sinks have stored was read, and types were compared.
    opened_functions: bool = False


def answer_of(graph: JobGraph, path: str, settings: Settings, *, open_functions: bool = False) -> Answer:
    """`settings`: those of the job; `open_functions`: their `open` is called in this process.

    Raises SnapshotError where there is no such savepoint, or only a part of it.
    """
    trust, notes = _trust(settings)
    opened = open_snapshot(path, secret=trust.secret)
    problems: tuple[str, ...] = ()
    trusted = True
    if trust.secret or not trust.trust_pickle:
        try:
            trusted = check_trust(opened.metadata, opened.seal, trust, opened.directory)
        except UntrustedPickleError as error:
            problems, trusted = (str(error),), False
    allowed = settings.get(execution.IGNORE_UNCLAIMED_STATE)
    findings = findings_of(opened.metadata, graph, allow_non_restored=allowed)
    if open_functions and not any(finding.outcome is Outcome.REFUSED for finding in findings):
        from yarrow.cli.savepoints.savepoint_types import other_types

        adopted = with_max_parallelism(graph, max_parallelism_of_savepoint(opened.metadata, graph))
        reader = SnapshotReader(opened.directory)
        refused, more = other_types(opened.metadata, adopted, reader, trusted=trusted)
        notes += more
        for mismatch in refused:
            findings = _refused(findings, mismatch)
    return Answer(opened, findings, problems, notes, open_functions)


def _trust(settings: Settings) -> tuple[SnapshotTrust, tuple[str, ...]]:
    try:
        secret, trusted = settings.get(security.SNAPSHOT_SECRET_FILE), security.SNAPSHOT_TRUST_PICKLE
        return SnapshotTrust.of(secret or "", settings.get(trusted)), ()
    except SnapshotStorageError as error:
        # It may lie where the master runs, and only there.
        return SnapshotTrust(), (f"whether pickled state is read was not checked: {error}",)


def findings_of(
    metadata: CheckpointMetadata, graph: JobGraph, *, allow_non_restored: bool
) -> Sequence[OperatorFinding]:
    """Those of check_savepoint, and what is refused beyond them: records in flight that nobody could own."""
    try:
        graph = with_max_parallelism(graph, max_parallelism_of_savepoint(metadata, graph))
    except SavepointMismatchError as error:
        return [_refusal(error)]
    findings = check_savepoint(metadata, graph, allow_non_restored=allow_non_restored)
    if any(finding.outcome is Outcome.REFUSED for finding in findings):
        return findings
    try:
        assign(metadata, graph, allow_non_restored=allow_non_restored)
    except SavepointMismatchError as error:
        return _refused(findings, error)
    return findings


def _refused(findings: Sequence[OperatorFinding], error: SavepointMismatchError) -> Sequence[OperatorFinding]:
    """The finding of the operator that the error names is another now."""
    named = [finding for finding in findings if finding.operator == error.operator]
    if not named:
        return [*findings, _refusal(error)]
    refused = replace(named[0], outcome=Outcome.REFUSED, reason=str(error))
    return [refused if finding is named[0] else finding for finding in findings]


def _refusal(error: SavepointMismatchError) -> OperatorFinding:
    return OperatorFinding(error.operator, None, Outcome.REFUSED, str(error))
