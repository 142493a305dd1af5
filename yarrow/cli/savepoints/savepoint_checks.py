"""Compares a savepoint with a program without a restore: all checks of a master before it deploys.

Owner: the main thread; reads only metadata and the secret, unless functions are to be opened. Types of single
states are compared when the job registers them: no master knows them either.
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
    """The results of all checks."""

    opened: OpenedSnapshot
    findings: Sequence[OperatorFinding]
    #: Obstacles to a restore that concern no single operator.
    problems: tuple[str, ...] = ()
    #: Checks that were impossible here.
    notes: tuple[str, ...] = ()
    #: Functions were opened, stored values of sources and sinks were read, and types were compared.
    opened_functions: bool = False


def answer_of(graph: JobGraph, path: str, settings: Settings, *, open_functions: bool = False) -> Answer:
    """`settings` are the job's. `open_functions`: calls functions' `open` in this process.

    Raises SnapshotError if there is no such savepoint, or only a part of it.
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
        # The secret may lie only where the master runs.
        return SnapshotTrust(), (f"the trust in pickled state was not checked: {error}",)


def findings_of(
    metadata: CheckpointMetadata, graph: JobGraph, *, allow_non_restored: bool
) -> Sequence[OperatorFinding]:
    """The findings of check_savepoint, and further refusals: records in flight without an owner."""
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
    """The findings, with a refusal for the operator in the error."""
    named = [finding for finding in findings if finding.operator == error.operator]
    if not named:
        return [*findings, _refusal(error)]
    refused = replace(named[0], outcome=Outcome.REFUSED, reason=str(error))
    return [refused if finding is named[0] else finding for finding in findings]


def _refusal(error: SavepointMismatchError) -> OperatorFinding:
    return OperatorFinding(error.operator, None, Outcome.REFUSED, str(error))
