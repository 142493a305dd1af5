"""Assignment: nothing of a snapshot is lost or given twice, at any parallelism; what does not fit is named."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.job_graphs import Stage, linear_job
from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from tests.unit.runtime.snapshot.test_metadata import METADATA
from yarrow.common.typeinfo import Types
from yarrow.container.state.operator_state import OperatorStateBackend
from yarrow.datastream.state import ListStateDescriptor, MapStateDescriptor
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.data.key_groups import (
    KeyGroupRange,
    key_group_of,
    key_group_range_for_operator_index,
)
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.operator_spec import PartitionerKind, PartitionerSpec
from yarrow.runtime.snapshot.assignment import Assignment, assign
from yarrow.runtime.snapshot.channel_edges import edge_name
from yarrow.runtime.snapshot.errors import SavepointMismatchError
from yarrow.runtime.snapshot.handles import (
    ChannelStateHandle,
    CheckpointMetadata,
    InlineStateHandle,
    KeyGroupsSnapshot,
    OperatorState,
    OperatorSubtaskState,
    SerializerConfig,
    StateKind,
    ValueFormat,
)
from yarrow.runtime.snapshot.key_columns import split_by_key_group
from yarrow.runtime.snapshot.key_group_form import Run, StateForm, write_key_groups
from yarrow.runtime.snapshot.restored_state import RestoredKeyedState
from yarrow.runtime.snapshot.savepoint_check import (
    Outcome,
    check_savepoint,
    max_parallelism_of_savepoint,
    with_max_parallelism,
)
from yarrow.runtime.snapshot.value_serializers import value_serializer

MAX = 128
NUMBERS: ListStateDescriptor[int] = ListStateDescriptor("numbers", Types.LONG())
UNION: ListStateDescriptor[int] = ListStateDescriptor("union", Types.LONG())
RULES: MapStateDescriptor[str, int] = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
TARGET = OperatorID(f"{2:032x}")

parallelisms = st.integers(1, 7)


def job_of(
    parallelism: int, kind: PartitionerKind = PartitionerKind.KEY_GROUP, maximum: int = MAX
) -> JobGraph:
    job = linear_job(Stage(1, max_parallelism=MAX), Stage(parallelism, max_parallelism=maximum))
    edge = msgspec.structs.replace(job.edges[0], partitioner=PartitionerSpec(kind=kind))
    return msgspec.structs.replace(job, edges=(edge,))


def metadata_of(*operators: OperatorState) -> CheckpointMetadata:
    return msgspec.structs.replace(METADATA, operators=operators)


def operator_of(parallelism: int, subtasks: dict[int, OperatorSubtaskState], **more: Any) -> OperatorState:
    fields: dict[str, Any] = {
        "operator_id": TARGET,
        "name": "operator 1",
        "uid": None,
        "max_parallelism": MAX,
    }
    return OperatorState(**{**fields, **more}, parallelism=parallelism, subtasks=subtasks)


def of_subtask(assignment: Assignment, job: JobGraph, subtask: int) -> OperatorSubtaskState:
    return assignment.tasks.get((job.vertices[1].id, subtask), {}).get(TARGET, OperatorSubtaskState())


def keyed_part(keys: list[int], groups: KeyGroupRange) -> OperatorSubtaskState:
    form = StateForm("count", StateKind.VALUE, value_serializer(Types.LONG(), "count", "op"))
    own = [key for key in keys if groups.holds(key_group_of(key, MAX))]
    runs = [Run(0, group, part, values) for group, (part, values) in split_by_key_group(own, MAX, own)]
    handle = MemoryOutput().write(write_key_groups([form], runs))
    snapshot = KeyGroupsSnapshot(key_groups=(groups.start, groups.end), states=(form.meta(),), handle=handle)
    return OperatorSubtaskState(keyed=(snapshot,))


@given(st.lists(st.integers(), unique=True), parallelisms, parallelisms)
def test_keyed_state_of_any_parallelism_is_found_at_any_other(keys: list[int], old: int, new: int) -> None:
    keys = [key for key in keys if -(2**63) <= key < 2**63]
    ranges = [key_group_range_for_operator_index(MAX, old, index) for index in range(old)]
    subtasks = {index: keyed_part(keys, groups) for index, groups in enumerate(ranges)}
    job = job_of(new)
    assignment = assign(metadata_of(operator_of(old, subtasks)), job)
    found: Counter[int] = Counter()
    for subtask in range(new):
        groups = key_group_range_for_operator_index(MAX, new, subtask)
        state = RestoredKeyedState(
            of_subtask(assignment, job, subtask).keyed, groups, read_inline, "op", trusted=False
        )
        for run in state.take("count", StateKind.VALUE, Types.LONG()):
            assert run.values == run.keys
            found.update(run.keys)
    assert found == Counter(keys)


@given(st.lists(st.lists(st.integers(0, 1000), max_size=6), min_size=1, max_size=6), parallelisms)
def test_lists_are_dealt_out_unions_given_to_all_and_broadcast_once(lists: list[list[int]], new: int) -> None:
    subtasks = {}
    for index, values in enumerate(lists):
        backend = OperatorStateBackend("op")
        backend.list_state(NUMBERS).add_all(values)
        backend.union_list_state(UNION).add_all(values)
        backend.broadcast_state(RULES).put("r", 7)
        subtasks[index] = OperatorSubtaskState(operator=backend.snapshot(1).write(MemoryOutput()))
    job = job_of(new)
    assignment = assign(metadata_of(operator_of(len(lists), subtasks)), job)
    everything = [value for values in lists for value in values]
    dealt: list[list[int]] = []
    for subtask in range(new):
        backend = OperatorStateBackend("op", of_subtask(assignment, job, subtask).operator, read_inline)
        dealt.append(list(backend.list_state(NUMBERS).get()))
        assert list(backend.union_list_state(UNION).get()) == everything
        assert dict(backend.broadcast_state(RULES).items()) == {"r": 7}
    assert [value for values in dealt for value in values] == everything
    if new == len(lists):
        assert dealt == lists
    else:
        sizes = list(map(len, dealt))
        assert max(sizes) - min(sizes) <= 1


def channel(
    consumer: int, *, job: JobGraph, producer: int = 0, at_producer: bool = False
) -> ChannelStateHandle:
    data = f"{producer}>{consumer}{'*' if at_producer else ''}".encode()
    return ChannelStateHandle(
        edge=edge_name(job, job.edges[0]), producer=producer, consumer=consumer, at_producer=at_producer,
        handle=InlineStateHandle(data=data), rows=SerializerConfig(format=ValueFormat.PICKLE),
    )  # fmt: skip


def channels_of(old: int, new: int, kind: PartitionerKind) -> list[list[str]]:
    job = job_of(new, kind)
    subtasks = {index: OperatorSubtaskState(channels=(channel(index, job=job),)) for index in range(old)}
    waiting = tuple(channel(index, job=job, at_producer=True) for index in range(old))
    source = OperatorState(
        operator_id=OperatorID(f"{1:032x}"), name="operator 0", uid=None, parallelism=1, max_parallelism=MAX,
        subtasks={0: OperatorSubtaskState(channels=waiting)},
    )  # fmt: skip
    metadata = metadata_of(source, operator_of(old, subtasks))
    assignment = assign(msgspec.structs.replace(metadata, job_id=job.job_id), job)
    assert not assignment.tasks.get((job.vertices[0].id, 0))
    return [
        [read_inline(c.handle).decode() for c in of_subtask(assignment, job, subtask).channels]
        for subtask in range(new)
    ]


@given(parallelisms, parallelisms)
def test_records_in_flight_of_a_keyed_edge_reach_whoever_may_own_them(old: int, new: int) -> None:
    found = channels_of(old, new, PartitionerKind.KEY_GROUP)
    for group in range(MAX):
        before, now = group * old // MAX, group * new // MAX
        # What waited at the producer comes right behind what lay with the consumer.
        place = found[now].index(f"0>{before}")
        assert found[now][place + 1] == f"0>{before}*"


@given(parallelisms, parallelisms)
def test_records_in_flight_of_other_edges_reach_one_subtask(old: int, new: int) -> None:
    flat = [name for names in channels_of(old, new, PartitionerKind.REBALANCE) for name in names]
    assert Counter(flat) == Counter([f"0>{index}{mark}" for index in range(old) for mark in ("", "*")])
    for subtask, names in enumerate(channels_of(old, new, PartitionerKind.BROADCAST)):
        assert names == [f"0>{subtask % old}", f"0>{subtask % old}*"]


def test_records_in_flight_that_nobody_can_own_are_refused() -> None:
    with pytest.raises(SavepointMismatchError, match=r"'operator 1'.*custom partitioner.*from 2 to 3"):
        channels_of(2, 3, PartitionerKind.CUSTOM)
    job = job_of(1)
    lost = msgspec.structs.replace(channel(0, job=job), edge="x->y/0")
    metadata = metadata_of(operator_of(1, {0: OperatorSubtaskState(channels=(lost,))}))
    with pytest.raises(SavepointMismatchError, match="does not have"):
        assign(metadata, job)
    assert not assign(metadata, job, allow_non_restored=True).tasks


def test_finished_subtasks_and_coordinators() -> None:
    job = job_of(2)
    inline = InlineStateHandle(data=b"splits")
    source = OperatorState(
        operator_id=OperatorID(f"{1:032x}"), name="operator 0", uid=None, parallelism=1, max_parallelism=MAX,
        subtasks={}, coordinator=inline, finished_subtasks=(0,),
    )  # fmt: skip
    half = operator_of(2, {}, finished_subtasks=(1,))
    found = assign(metadata_of(source, half), job)
    assert found.finished == {(job.vertices[0].id, 0), (job.vertices[1].id, 1)}
    assert found.coordinators == {source.operator_id: inline}
    rescaled = assign(metadata_of(source, half), job_of(3))
    assert rescaled.finished == {(job.vertices[0].id, 0)}
    whole = assign(metadata_of(source, operator_of(2, {}, finished_subtasks=(0, 1))), job_of(3))
    assert whole.finished == {(job.vertices[0].id, 0), *((job.vertices[1].id, index) for index in range(3))}


def finished(number: int, subtasks: tuple[int, ...], parallelism: int = 1) -> OperatorState:
    """One of the operators of a line, of which these subtasks had finished."""
    operator_id, name = OperatorID(f"{number + 1:032x}"), f"operator {number}"
    return operator_of(parallelism, {}, operator_id=operator_id, name=name, finished_subtasks=subtasks)


def test_a_finished_operator_is_not_fed_by_one_that_runs() -> None:
    """It would not be run again: what a source sends that is new behind it would be lost without a word."""
    metadata = metadata_of(finished(1, (0, 1), parallelism=2))
    with pytest.raises(
        SavepointMismatchError, match=r"'operator 1' had finished.*'operator 0', which it reads"
    ) as told:
        assign(metadata, job_of(2), allow_non_restored=True)
    assert told.value.operator == "operator 1" and "another uid" in str(told.value)
    outcomes = [(found.operator, found.outcome) for found in check_savepoint(metadata, job_of(2))]
    assert outcomes == [("operator 0", Outcome.NEW), ("operator 1", Outcome.REFUSED)]


def test_a_finished_operator_is_not_chained_with_one_that_runs() -> None:
    job = linear_job(Stage(1), Stage(1))
    source, sink = job.vertices
    chained = msgspec.structs.replace(source, operators=(*source.operators, *sink.operators))
    job = msgspec.structs.replace(job, vertices=(chained,), edges=())
    with pytest.raises(
        SavepointMismatchError, match=r"'operator 1' had finished.*'operator 0', which is chained"
    ):
        assign(metadata_of(finished(1, (0,))), job)
    assert assign(metadata_of(finished(0, (0,)), finished(1, (0,))), job).finished == {(source.id, 0)}


def test_a_finished_subtask_that_is_fed_at_another_parallelism_runs_again() -> None:
    """Its producer had finished; the one that is now in its place has not."""
    metadata = metadata_of(finished(0, (0,), 2), finished(1, (0,), 2), finished(2, (0,), 2))
    same = linear_job(Stage(2), Stage(2), Stage(2))
    assert assign(metadata, same).finished == {(vertex.id, 0) for vertex in same.vertices}
    job = linear_job(Stage(4), Stage(2), Stage(2))
    edge = msgspec.structs.replace(job.edges[0], partitioner=PartitionerSpec(kind=PartitionerKind.RESCALE))
    job = msgspec.structs.replace(job, edges=(edge, *job.edges[1:]))
    assert assign(metadata, job).finished == frozenset()


KEYED = {0: keyed_part([1, 2], KeyGroupRange(0, MAX - 1))}


def test_another_max_parallelism_is_refused_or_adopted() -> None:
    metadata = metadata_of(operator_of(1, KEYED))
    job = job_of(2, maximum=256)
    with pytest.raises(SavepointMismatchError, match=r"'operator 1'.*max parallelism 128.*the job has 256"):
        assign(metadata, job)
    adopted = max_parallelism_of_savepoint(metadata, job)
    assert adopted == {job.vertices[1].id: 128}
    assert assign(metadata, with_max_parallelism(job, adopted)).tasks
    with pytest.raises(SavepointMismatchError, match="parallelism 200 is above the max parallelism 128"):
        max_parallelism_of_savepoint(metadata, job_of(200, maximum=256))
    given_by_user = msgspec.structs.replace(job.vertices[1], max_parallelism_explicit=True)
    set_job = msgspec.structs.replace(job, vertices=(job.vertices[0], given_by_user))
    assert max_parallelism_of_savepoint(metadata, set_job) == {}


def test_operators_that_the_job_lacks_are_refused_by_name_unless_allowed() -> None:
    gone = operator_of(1, KEYED, operator_id=OperatorID("f" * 32), name="operator 1", uid="old-uid")
    metadata = metadata_of(gone)
    with pytest.raises(SavepointMismatchError) as caught:
        assign(metadata, job_of(1))
    assert caught.value.operator == "operator 1"
    assert "uid 'old-uid'" in str(caught.value) and "give it back uid('old-uid')" in str(caught.value)
    assert not assign(metadata, job_of(1), allow_non_restored=True).tasks
    assert assign(metadata_of(operator_of(1, {}, operator_id=OperatorID("e" * 32))), job_of(1)) is not None


def test_columns_of_keys_that_have_changed_places_are_found_before_anything_runs() -> None:
    form = StateForm("any", StateKind.VALUE, value_serializer(None, "any", "op"))
    handle = KeyGroupsSnapshot(
        key_groups=(0, 127),
        states=(form.meta(),),
        handle=MemoryOutput().write(write_key_groups([form], [Run(0, 0, [("a", "b")], [1])])),
        key_columns=("city", "land"),
    )
    metadata = metadata_of(operator_of(1, {0: OperatorSubtaskState(keyed=(handle,))}))
    job = job_of(1)
    source, target = job.vertices
    for columns, outcome in ((("city", "land"), Outcome.RESTORES), (("land", "city"), Outcome.REFUSED)):
        head = msgspec.structs.replace(target.operators[0], state_key_columns=columns)
        changed = msgspec.structs.replace(target, operators=(head,))
        found = check_savepoint(metadata, msgspec.structs.replace(job, vertices=(source, changed)))
        assert found[1].outcome is outcome
    assert "['land', 'city']" in found[1].reason


def test_findings_of_check_savepoint() -> None:
    form = StateForm("any", StateKind.VALUE, value_serializer(None, "any", "op", allow_pickle=True))
    handle = MemoryOutput().write(write_key_groups([form], [Run(0, 0, [1], [Counter])]))
    pickled = KeyGroupsSnapshot(key_groups=(0, 127), states=(form.meta(),), handle=handle)
    subtasks = {0: OperatorSubtaskState(keyed=(*KEYED[0].keyed, pickled))}
    gone = operator_of(1, KEYED, operator_id=OperatorID("f" * 32), name="gone", uid=None)
    metadata = metadata_of(operator_of(1, subtasks), gone)
    found = check_savepoint(metadata, job_of(1))
    assert [(f.operator, f.outcome) for f in found] == [
        ("operator 0", Outcome.NEW),
        ("operator 1", Outcome.RESTORES),
        ("gone", Outcome.REFUSED),
    ]
    assert found[1].states == ("count", "any") and found[1].pickled == ("any",)
    assert "no uid" in found[2].reason
    dropped = check_savepoint(metadata, job_of(1), allow_non_restored=True)
    assert dropped[2].outcome is Outcome.DROPPED
    refused = check_savepoint(metadata, job_of(1, maximum=256))
    assert refused[1].outcome is Outcome.REFUSED
