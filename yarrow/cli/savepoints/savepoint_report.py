"""The report of check-savepoint: operator by operator, as text for people and as JSON for scripts.

Owner: the main thread; pure. It reads metadata alone, no state.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from yarrow.cli.savepoints.savepoint_checks import Answer
from yarrow.common.typeinfo import TypeInformation
from yarrow.runtime.snapshot.handles import CheckpointMetadata, OperatorState, SerializerConfig
from yarrow.runtime.snapshot.key_types import key_type_of
from yarrow.runtime.snapshot.savepoint_check import OperatorFinding, Outcome
from yarrow.runtime.snapshot.value_serializers import holds_pickles

#: The names of the modes of operator state.
_MODES = {"split": "operator list", "union": "union list", "broadcast": "broadcast"}


@dataclass(frozen=True, slots=True)
class StateLine:
    """One state in the snapshot."""

    name: str
    kind: str
    #: The declared type of its values; None = none.
    type: str | None
    pickled: bool


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """The outcome for one operator."""

    name: str
    uid: str | None
    #: restores, is new, would be dropped, refused.
    outcome: str
    reason: str
    #: Parallelism in the snapshot; None for an operator that it does not have.
    parallelism: int | None
    max_parallelism: int | None
    size: int
    states: tuple[StateLine, ...]
    #: The type of the keys of its keyed states; None if unknown.
    key_type: str | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The whole report."""

    path: str
    kind: str
    checkpoint_id: int
    job_id: str
    job_name: str
    taken: str
    engine_version: str
    size: int
    restorable: bool
    operators: tuple[OperatorLine, ...]
    #: Obstacles to a restore that concern no single operator.
    problems: tuple[str, ...]
    #: Checks that were not made.
    notes: tuple[str, ...]
    #: Functions were opened, and the types of their registered states compared.
    types_compared: bool

    def as_json(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)


def report_on(answer: Answer) -> Report:
    """The report on a snapshot, with a line for each finding."""
    opened, findings = answer.opened, answer.findings
    metadata = opened.metadata
    taken = dt.datetime.fromtimestamp(metadata.timestamp_ms / 1000, dt.UTC)
    left = list(metadata.operators)
    lines = []
    for finding in findings:
        state = _state_of(finding, left)
        if state is not None:
            left.remove(state)
        lines.append(_line_of(finding, state))
    return Report(
        path=opened.directory,
        kind="savepoint" if metadata.kind.is_savepoint else "checkpoint",
        checkpoint_id=metadata.checkpoint_id,
        job_id=metadata.job_id,
        job_name=metadata.job_name,
        taken=taken.strftime("%Y-%m-%d %H:%M:%S UTC"),
        engine_version=metadata.engine_version,
        size=_size(metadata),
        restorable=not answer.problems
        and all(finding.outcome is not Outcome.REFUSED for finding in findings),
        operators=tuple(lines),
        problems=answer.problems,
        notes=answer.notes,
        types_compared=answer.opened_functions,
    )


def _state_of(finding: OperatorFinding, states: Sequence[OperatorState]) -> OperatorState | None:
    """The state to which a finding refers: findings name operators by their uid if they have one."""
    if finding.outcome is Outcome.NEW:
        return None
    alike = [state for state in states if state.uid == finding.uid and set(finding.states) == _names(state)]
    named = [state for state in alike if state.name == finding.operator]
    return next(iter(named or alike), None)


def _names(state: OperatorState) -> set[str]:
    return {line.name for line in _states(state)}


def _line_of(finding: OperatorFinding, state: OperatorState | None) -> OperatorLine:
    return OperatorLine(
        name=finding.operator,
        uid=finding.uid,
        outcome=finding.outcome.value,
        reason=finding.reason,
        parallelism=None if state is None else state.parallelism,
        max_parallelism=None if state is None else state.max_parallelism,
        size=0 if state is None else sum(each.state_size for each in state.subtasks.values()),
        states=() if state is None else tuple(_states(state)),
        key_type=None if state is None else _key_type(state),
    )


def _key_type(state: OperatorState) -> str | None:
    keyed = (handle for subtask in state.subtasks.values() for handle in subtask.keyed)
    found = sorted({str(known) for handle in keyed if (known := key_type_of(handle.key_type)) is not None})
    return ", ".join(found) or None


def _states(state: OperatorState) -> Iterator[StateLine]:
    seen: dict[str, StateLine] = {}
    for _, subtask in sorted(state.subtasks.items()):
        for keyed in subtask.keyed:
            for meta in keyed.states:
                kind = f"expiring {meta.kind.value}" if meta.ttl else meta.kind.value
                _note(seen, meta.name, kind, meta.value, meta.map_key)
        for handle in subtask.operator:
            for named in handle.states:
                _note(seen, named.name, _MODES[named.mode.value], named.value, named.map_key)
    yield from seen.values()


def _note(
    seen: dict[str, StateLine],
    name: str,
    kind: str,
    value: SerializerConfig,
    map_key: SerializerConfig | None,
) -> None:
    before = seen.get(name)
    pickled = holds_pickles(value) or (map_key is not None and holds_pickles(map_key))
    declared = _type_of(value)
    if map_key is not None and (key_type := _type_of(map_key)) is not None:
        declared = f"{key_type} to {declared or 'undeclared'}"
    seen[name] = StateLine(name, kind, declared, pickled or (before is not None and before.pickled))


def _type_of(config: SerializerConfig) -> str | None:
    if config.type_spec is None:
        return None
    try:
        return str(TypeInformation.from_spec(config.type_spec))
    except ValueError:
        return "a type of a later release"


def _size(metadata: CheckpointMetadata) -> int:
    coordinators = sum(each.coordinator.size for each in metadata.operators if each.coordinator is not None)
    return metadata.state_size + coordinators


# ---------------------------------------------------------------------- text


def text_of(report: Report) -> str:
    """The report for people."""
    lines = [
        f"{report.kind.capitalize()} {report.checkpoint_id} of job {report.job_name!r}, taken {report.taken}, "
        f"{_bytes(report.size)} of state, in {report.path}:"
    ]
    for operator in report.operators:
        lines += _operator_text(operator)
    refused = sum(operator.outcome == Outcome.REFUSED.value for operator in report.operators)
    lines += [f"  refused: {problem}" for problem in report.problems]
    lines += [f"  {note}" for note in report.notes]
    if refused:
        lines.append(f"{refused} of {len(report.operators)} operators keep the program from being restored.")
    elif report.restorable:
        lines.append("The program can be restored from it.")
        if not report.types_compared:
            lines[-1] += " Types of states are compared when the job registers them, or here by --open."
    else:
        lines.append("The program cannot be restored from it.")
    return "\n".join(lines)


def _operator_text(operator: OperatorLine) -> Iterator[str]:
    uid = f" (uid {operator.uid})" if operator.uid is not None else ""
    of = ""
    if operator.parallelism is not None:
        of = (
            f": {_bytes(operator.size)}, written at parallelism {operator.parallelism} of at most "
            f"{operator.max_parallelism}"
        )
    if operator.key_type is not None:
        of += f", keys of {operator.key_type}"
    yield f"  {operator.name}{uid} {operator.outcome}{of}"
    width = max((len(state.name) for state in operator.states), default=0)
    for state in operator.states:
        of = f" of {state.type}" if state.type is not None else ", undeclared"
        if state.kind == "timers":
            of = ""
        pickled = "; holds pickled values" if state.pickled else ""
        yield f"    {state.name:<{width}}  {state.kind}{of}{pickled}"
    if operator.reason:
        yield f"    {operator.reason}"


def _bytes(size: int) -> str:
    if size < 10_000:
        return f"{size} bytes"
    for unit in ("KB", "MB", "GB"):
        size = round(size / 1000)
        if size < 10_000:
            return f"{size} {unit}"
    return f"{size} GB"
