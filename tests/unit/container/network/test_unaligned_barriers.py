"""Unaligned barriers at one task, under any interleaving: each row is before the cut in one place, in order, once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.runtime.snapshot.memory_output import MemoryOutput, read_inline
from yarrow.common.typeinfo import Types
from yarrow.container.chain.pending_snapshot import PendingSubtaskSnapshot, TaskName
from yarrow.container.network.barrier_handler import ReadyCheckpoint
from yarrow.container.network.channel_recording import ChannelOrigin, ChannelRecording
from yarrow.container.network.element_codec import ElementCodec, encode_control
from yarrow.container.network.frames import FrameHeader
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.input_gate import GateChannel, InputGate
from yarrow.container.network.output_channel import LocalOutputChannel
from yarrow.container.task.checkpointing.records_in_flight import InFlightRecorder, RecordsInFlight
from yarrow.container.task.checkpointing.recovered_records import RecoveredChannel, RecoveredRecords
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID
from yarrow.runtime.data.checkpoint_options import CheckpointLocation, CheckpointOptions, SnapshotKind
from yarrow.runtime.data.elements import (
    BarrierAlignment,
    CheckpointBarrier,
    EndOfData,
    RowBatch,
    StreamElement,
    Watermark,
)
from yarrow.runtime.data.serializers.serializers import serializer_for
from yarrow.runtime.rpc.messages import CheckpointMetrics

CODEC = ElementCodec(serializer_for(Types.LONG()))


def origin(producer: int = 0, *, changeable: bool = False) -> ChannelOrigin:
    return ChannelOrigin("edge", producer, 0, CODEC, None, 1, 128, changeable)


def barrier(number: int, timeout_ms: int = 0) -> CheckpointBarrier:
    options = CheckpointOptions(
        kind=SnapshotKind.CHECKPOINT,
        location=CheckpointLocation(directory=""),
        unaligned=True,
        aligned_timeout_ms=timeout_ms,
    )
    return CheckpointBarrier(number, 0, BarrierAlignment.UNALIGNED, options)


def rows_of(data: bytes) -> list[int]:
    recovered = RecoveredRecords([RecoveredChannel(origin(), 0, data, None)])
    found: list[int] = []
    while (batch := recovered.take()) is not None:
        assert isinstance(batch.batch, RowBatch)
        found += batch.batch.rows
    return found


class Task:
    """What a task does with its channels, without operators: taken rows are its state."""

    def __init__(self, channels: int, overtakable: list[bool], clock: ManualClock) -> None:
        origins = [origin(i, changeable=i == 1) if overtakable[i] else None for i in range(channels)]
        entries = [GateChannel(InputChannel(CODEC, 99, 1 << 20, lambda: None, o), 0) for o in origins]
        self.gate = InputGate(entries, 1, clock)
        self.recorder = InFlightRecorder(self.gate, (), clock, 1 << 20)
        self.taken: list[list[int]] = [[] for _ in range(channels)]
        #: By checkpoint: what each channel had brought at the cut, and what was recorded once that was complete.
        self.cuts: dict[int, list[list[int]]] = {}
        self.recorded: dict[int, dict[int, list[int]]] = {}

    def append(self, position: int, element: StreamElement, as_frame: bool) -> None:
        channel = self.gate.channels[position].channel
        if not as_frame:
            channel.append(element, len(element) if isinstance(element, RowBatch) else 0)
            return
        if isinstance(element, RowBatch):
            frame_type, parts, flags = CODEC.encode_batch(element)
            payload = b"".join(parts)
            channel.append_frame(FrameHeader(frame_type, 1, len(payload), len(element), flags), payload)
        else:
            assert not isinstance(element, RowBatch)
            frame_type, payload = encode_control(element)  # type: ignore[arg-type]
            channel.append_frame(FrameHeader(frame_type, 1, len(payload), 0, 0), payload)

    def look(self) -> None:
        for position, entry in enumerate(self.gate.channels):
            while (found := entry.channel.next_announced()) is not None:
                self._cut(self.gate.barriers.announced(position, found))
        self._cut(self.gate.barriers.timed_out())
        self.recorder.proceed()

    def take(self) -> bool:
        found = self.gate.poll()
        if found is None:
            return False
        position, entry, element = found
        if isinstance(element, RowBatch):
            self.taken[position] += element.rows
        elif isinstance(element, CheckpointBarrier):
            self._cut(self.gate.barriers.barrier(position, element))
        elif isinstance(element, EndOfData):
            self.gate.end_channel(entry)
            self._cut(self.gate.barriers.channel_ended())
        return True

    def abort(self, number: int) -> None:
        self.gate.barriers.abort(number)
        self.recorder.drop(number)

    def _cut(self, checkpoints: Any) -> None:
        for ready in checkpoints:
            number = ready.barrier.checkpoint_id
            assert number not in self.cuts
            self.cuts[number] = [list(rows) for rows in self.taken]
            gathered = self.recorder.begin(ready, ())
            assert gathered is not None
            gathered.hand_over(snapshot_of(ready, gathered), lambda s, n=number, g=gathered: self._note(n, g))  # type: ignore[misc]

    def _note(self, number: int, gathered: RecordsInFlight) -> None:
        handles = gathered.write(MemoryOutput())
        assert len({handle.producer for handle in handles}) == len(handles)
        self.recorded[number] = {handle.producer: rows_of(read_inline(handle.handle)) for handle in handles}


def snapshot_of(ready: ReadyCheckpoint, gathered: RecordsInFlight) -> PendingSubtaskSnapshot:
    name = TaskName(JobID("0" * 32), ExecutionAttemptID(""), 0, "task", 0)
    assert ready.barrier.options is not None
    return PendingSubtaskSnapshot(
        name, ready.barrier, ready.barrier.options, (), CheckpointMetrics(),
        finished=False, settled=lambda: None, channels=gathered,
    )  # fmt: skip


def script(channel: int, rows: list[int], ends_after: int | None, timeout_ms: int) -> list[StreamElement]:
    """Batches and watermarks, a barrier behind `rows[i]` batches; the end may come before some barriers."""
    elements: list[StreamElement] = []
    number = 100 * channel
    for checkpoint, batches in enumerate(rows, 1):
        for size in range(1, batches + 1):
            elements.append(RowBatch(list(range(number, number + size))))
            elements.append(Watermark(number))
            number += size
        if checkpoint == ends_after:
            break
        elements.append(barrier(checkpoint, timeout_ms))
    return [*elements, EndOfData()]


def rows_before(elements: list[StreamElement], number: int) -> list[int]:
    found: list[int] = []
    for element in elements:
        if isinstance(element, CheckpointBarrier) and element.checkpoint_id == number:
            break
        if isinstance(element, RowBatch):
            found += element.rows
    return found


counts = st.lists(st.integers(0, 4), min_size=2, max_size=2)


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(st.lists(counts, min_size=2, max_size=3), st.data())
def test_each_row_before_a_barrier_is_in_state_or_in_flight(
    rows: list[list[int]], data: st.DataObject
) -> None:
    timeout_ms = data.draw(st.sampled_from([0, 0, 1000]))
    ends = [data.draw(st.sampled_from([None, None, 1, 2])) for _ in rows]
    overtakable = [data.draw(st.sampled_from([True, True, True, False])) for _ in rows]
    scripts = [script(i, each, ends[i], timeout_ms) for i, each in enumerate(rows)]
    clock = ManualClock()
    task = Task(len(rows), overtakable, clock)
    aborted: set[int] = set()
    left = [list(elements) for elements in scripts]
    actions = st.one_of(
        st.tuples(st.just("append"), st.integers(0, len(rows) - 1), st.booleans()),
        st.tuples(st.sampled_from(["look", "take", "take", "time", "abort"]), st.just(0), st.just(False)),
    )
    for action, position, as_frame in data.draw(st.lists(actions, max_size=60)):
        if action == "append" and left[position]:
            task.append(position, left[position].pop(0), as_frame)
        elif action == "look":
            task.look()
        elif action == "take":
            task.take()
        elif action == "time":
            clock.advance(0.6)
        elif action == "abort" and data.draw(st.integers(0, 4)) == 0:
            aborted.add(1)
            task.abort(1)
    for position, elements in enumerate(left):
        for element in elements:
            task.append(position, element, False)
    while task.take():
        task.look()
    task.look()
    assert task.taken == [rows_before(elements, 99) for elements in scripts], "every row is taken, in order"
    for number, held in task.recorded.items():
        for position, elements in enumerate(scripts):
            before = task.cuts[number][position] + held.get(position, [])
            assert before == rows_before(elements, number)
            assert overtakable[position] or position not in held
    superseded = {n for n in task.cuts if n < max(task.cuts)}
    assert task.recorded.keys() >= task.cuts.keys() - aborted - superseded, "nothing is gathered for ever"
    if any(
        isinstance(e, CheckpointBarrier) and e.checkpoint_id == 2 for elements in scripts for e in elements
    ):
        assert 2 in task.cuts


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.sampled_from(["row", "row", "grant", "drain", "barrier", "pull", "watermark"]), max_size=40)
)
def test_at_an_output_each_row_is_sent_before_the_barrier_or_overtaken(actions: list[str]) -> None:
    output = LocalOutputChannel(lambda: None)
    output.origin = origin()
    target = InputChannel(CODEC, 2, 1 << 20, lambda: None)
    attach_at = len(actions) // 3
    emitted: list[int] = []
    overtaken: dict[int, list[int]] = {}
    emitted_before: dict[int, list[int]] = {}
    checkpoint = 0
    for step, action in enumerate(actions):
        if step == attach_at:
            output.attach(target)
        if action == "row":
            emitted.append(step)
            output.send_batch(RowBatch([step]))
        elif action == "watermark":
            output.send_control(Watermark(step))
        elif action == "grant" and step > attach_at:
            output.grant(output.sent_batches + 1, 1 << 30)
        elif action == "drain":
            output.drain_overdraft()
        elif action == "barrier":
            checkpoint += 1
            emitted_before[checkpoint] = list(emitted)
            batches = output.send_ahead(barrier(checkpoint))
            overtaken[checkpoint] = [row for batch in batches for row in batch.rows]  # type: ignore[union-attr]
        elif action == "pull":
            # As when the aligned timeout passes while the barrier waits.
            checkpoint += 1
            emitted_before[checkpoint] = list(emitted)
            output.send_control(barrier(checkpoint))
            batches = output.pull_ahead(checkpoint)
            overtaken[checkpoint] = [row for batch in batches for row in batch.rows]  # type: ignore[union-attr]
            assert not output.holds_barrier(checkpoint) or target.received_buffers == 0
    if attach_at >= len(actions):
        output.attach(target)
    output.grant(1 << 30, 1 << 60)
    assert output.drain_overdraft()
    received: list[int] = []
    seen: set[int] = set()
    while target.queued:
        element = target.take()
        if isinstance(element, RowBatch):
            received += element.rows
        elif isinstance(element, CheckpointBarrier):
            number = element.checkpoint_id
            seen.add(number)
            if seen == set(range(1, number + 1)):
                assert received + overtaken[number] == emitted_before[number]
    assert received == emitted
    assert seen == set(overtaken)


def test_a_waiting_barrier_is_found_by_its_checkpoint() -> None:
    output = LocalOutputChannel(lambda: None)
    output.attach(InputChannel(CODEC, 2, 1 << 20, lambda: None))
    while output.has_credit:
        output.send_batch(RowBatch([0]))
    for number in (1, 2):
        output.send_batch(RowBatch([number]))
        output.send_control(barrier(number))
    assert [output.holds_barrier(number) for number in (1, 2, 3)] == [True, True, False]
    assert [batch.rows for batch in output.pull_ahead(2)] == [[1], [2]]  # type: ignore[union-attr]
    assert [output.holds_barrier(number) for number in (1, 2)] == [True, False]
    assert output.pull_ahead(3) == []


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(st.integers(-5, 5), min_size=1, max_size=4), max_size=6), st.integers(0, 7))
def test_recovered_rows_that_were_not_taken_are_in_flight_again(batches: list[list[int]], taken: int) -> None:
    recording = ChannelRecording(origin(changeable=True), 1)
    for rows in batches:
        recording.add(RowBatch(list(rows), [None] * len(rows)))
    data = b"".join(recording.frames())

    def positive(batch: Any) -> RowBatch:
        kept = [row for row in batch.rows if row > 0]
        return RowBatch(kept)

    for keep in (None, positive):
        recovered = RecoveredRecords([RecoveredChannel(origin(i), 0, data, keep) for i in (0, 1)])
        first: list[int] = []
        for _ in range(taken):
            found = recovered.take()
            if found is not None:
                first += found.batch.rows  # type: ignore[union-attr]
        left = [b"".join(part.frames()) for part in recovered.remaining(2)]
        second = [row for part in left for row in rows_of(part)]
        rest: list[int] = []
        while (found := recovered.take()) is not None:
            rest += found.batch.rows  # type: ignore[union-attr]
        everything = 2 * [row for rows in batches for row in rows if keep is None or row > 0]
        assert first + second == everything
        assert second == rest


def test_a_row_that_is_changed_after_the_cut_is_recorded_as_it_was() -> None:
    codec = ElementCodec(serializer_for(None))
    named = ChannelOrigin("edge", 0, 0, codec, None, 1, 128, True)
    recording = ChannelRecording(named, 1)
    row = {"n": 1}
    recording.add(RowBatch([row]))
    row["n"] = 2
    recovered = RecoveredRecords([RecoveredChannel(named, 0, b"".join(recording.frames()), None)])
    found = recovered.take()
    assert found is not None and isinstance(found.batch, RowBatch)
    assert found.batch.rows == [{"n": 1}]
