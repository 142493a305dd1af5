"""TaskInputs: takes batches and control elements from a task's gate, and runs the rows chunk by chunk.

Owner: the task thread; any thread may announce barriers. The present batch may be interrupted by a mail, a
barrier or the end of the slice. Its rest waits here, where a snapshot finds it. It never looks at credit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.network.barrier_handler import ReadyCheckpoint
from yarrow.container.network.channel_recording import ChannelOrigin, ChannelRecording
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.input_gate import GateChannel, InputGate
from yarrow.container.operators.base import TimeHolder
from yarrow.container.sizing.slice_sizer import SliceSizer
from yarrow.container.task.checkpointing.recovered_records import RecoveredRecords
from yarrow.container.task.input_watermarks import InputWatermarks
from yarrow.container.task.latency import LatencyTracker
from yarrow.container.task.task_life import TaskLife, TaskStage
from yarrow.container.task.task_outputs import TaskOutputs
from yarrow.container.task.task_slices import TaskSlices
from yarrow.runtime.data.elements import (
    ArrowBatch,
    Batch,
    CheckpointBarrier,
    ControlElement,
    EndOfData,
    LatencyMarker,
    LoopMarker,
    RowBatch,
    StreamElement,
    Watermark,
    WatermarkStatus,
)

if TYPE_CHECKING:
    from yarrow.container.task.loop_markers import LoopMarkers


def stamps_of(batch: RowBatch) -> list[int | None]:
    """The timestamp of each row; None for a row without one."""
    return [None] * len(batch) if batch.timestamps is None else batch.timestamps


class TaskInputs:
    """Feeds a task's input into its chain."""

    def __init__(
        self,
        life: TaskLife,
        chain: OperatorChain,
        gate: InputGate,
        outputs: TaskOutputs,
        slices: TaskSlices,
        latency: LatencyTracker,
        *,
        cut: Callable[[Sequence[ReadyCheckpoint]], None],
        ended: Callable[[], None],
    ) -> None:
        """`cut` is called at a checkpoint's barriers, `ended` after the end of all inputs."""
        self._life = life
        self._chain = chain
        self._gate = gate
        self._outputs = outputs
        self._slices = slices
        self._latency = latency
        self._cut = cut
        self._ended = ended
        self.watermarks = InputWatermarks(gate, chain.time)
        chain.head.time_holder = self._time_holder
        #: Number of processed rows.
        self.records_in = 0
        #: The rest of the present batch: (input index, rows, timestamps, position, origin).
        self._batch: tuple[int, list[Any], list[int | None] | None, int, ChannelOrigin | None] | None = None
        #: The rest of the present record batch, for which the head has had no room: (input index, batch, origin).
        self._columns: tuple[int, ArrowBatch, ChannelOrigin | None] | None = None
        #: End of the present slice (perf_counter).
        self._deadline = 0.0
        #: The restored records in flight, which come before all others.
        self.recovered = RecoveredRecords()
        #: Sizes reads of state in advance of chunks; see `read_ahead`.
        self._ahead: SliceSizer | None = None
        #: Position in the present batch up to which state has been read.
        self._read_to = 0
        #: A barrier that may overtake waits in a queue. Set by any thread; true at first, for barriers before
        #: the task.
        self._announced = True
        #: The loops to which the task belongs; None = it belongs to none.
        self.loops: LoopMarkers | None = None
        for entry in gate.channels:
            entry.channel.on_announced = self._on_announced

    def read_ahead(self) -> None:
        """Reads the head's state for more rows at once than a chunk has. Called once, before the first."""
        self._ahead = SliceSizer.of_reads(self._slices.length)

    def _time_holder(self) -> TimeHolder | None:
        slowest = self._gate.slowest
        return (
            None if slowest is None else TimeHolder(slowest.input_index, slowest.producer, slowest.watermark)
        )

    def _on_announced(self) -> None:
        """Cuts the present chunk as a mail does; the channel wakes the task. Any thread."""
        self._announced = True
        self._slices.chunk.cut()

    def take_announcements(self) -> bool:
        """Whether a barrier may have been announced since the last call."""
        announced, self._announced = self._announced, False
        return announced

    @property
    def has_data(self) -> bool:
        """Whether there is input to process."""
        at_hand = self._batch is not None or self._columns is not None or self._chain.flowing
        return at_hand or bool(self.recovered) or self._gate.has_data

    def take(self, deadline: float) -> bool:
        """Processes input until `deadline` (perf_counter), a mail waits or none is left; True if there was any."""
        life, slices, worked = self._life, self._slices, False
        self._deadline = deadline
        while life.stage is TaskStage.RUNNING and not self.watermarks.firing:
            if self._chain.flowing:
                self._chain.flow_on(self._is_over)
            elif self._batch is not None:
                if not self._run_chunk():
                    return worked
            elif self._columns is not None:
                if not self._run_columns():
                    return worked
            elif self.recovered:
                self._take_recovered()
            else:
                element = self._gate.poll()
                if element is None:
                    return worked
                self._on_element(*element)
            worked = True
            if slices.over(deadline):
                return True
        return worked

    def at_hand(self, checkpoint_id: int) -> list[ChannelRecording]:
        """The taken and unprocessed records, in order, as records in flight of a checkpoint."""
        found: list[ChannelRecording] = []
        if self._batch is not None:
            _, rows, timestamps, position, origin = self._batch
            if origin is not None:
                rest = ChannelRecording(origin, checkpoint_id)
                rest.add(RowBatch(rows[position:], None if timestamps is None else timestamps[position:]))
                found.append(rest)
        if self._columns is not None and self._columns[2] is not None:
            rest = ChannelRecording(self._columns[2], checkpoint_id)
            rest.add(self._columns[1])
            found.append(rest)
        found += self.recovered.remaining(checkpoint_id)
        return found

    def take_barriers(self) -> bool:
        """Takes barriers after the end of data: tasks that wait for their last checkpoint still send them."""
        moved = False
        while self._life.is_working:
            element = self._gate.poll_ended()
            if element is None:
                return moved
            moved = True
            if isinstance(element[2], CheckpointBarrier):
                self._cut(self._gate.barriers.barrier(element[0], element[2]))
        return moved

    def _take_recovered(self) -> None:
        found = self.recovered.take()
        if found is not None:
            self._on_batch(found.input_index, found.batch, found.origin)

    def _on_element(self, position: int, entry: GateChannel, element: StreamElement) -> None:
        if isinstance(element, RowBatch | ArrowBatch):
            if self._ahead is not None and isinstance(element, RowBatch):
                element = self._with_following(element, entry.channel)
            self._on_batch(entry.input_index, element, entry.channel.origin)
        else:
            self._on_control(position, entry, element)

    def _on_batch(self, input_index: int, batch: Batch, origin: ChannelOrigin | None) -> None:
        if isinstance(batch, RowBatch):
            self._batch, self._read_to = (input_index, batch.rows, batch.timestamps, 0, origin), 0
            self._run_chunk()
        else:
            self._columns = (input_index, batch, origin)
            self._run_columns()

    def _run_columns(self) -> bool:
        """Runs the next rows of the present record batch; False if the head has no room for any."""
        assert self._columns is not None
        input_index, batch, origin = self._columns
        rows, room = len(batch), self._chain.room
        if room is not None and room < rows:
            if room == 0:
                return False
            self._columns = (input_index, batch.sliced(room, rows), origin)
            batch = batch.sliced(0, room)
        else:
            self._columns = None
        self.records_in += len(batch)
        self._chain.run_batch(input_index, batch, self._is_over)
        return True

    def _is_over(self) -> bool:
        return self._slices.over(self._deadline)

    def _run_chunk(self) -> bool:
        """Runs the next rows of the present batch; False if the head has no room for any."""
        assert self._batch is not None
        slices, room = self._slices, self._chain.room
        if room == 0:
            return False
        input_index, rows, timestamps, position, origin = self._batch
        end = min(position + slices.sizer.rows, self._read_ahead(input_index, rows, position))
        if room is not None:
            end = min(end, position + room)
        if position == 0 and end == len(rows):
            chunk, stamps = rows, timestamps
        else:
            chunk = rows[position:end]
            stamps = None if timestamps is None else timestamps[position:end]
        self._batch = None
        started = slices.seconds()
        self._chain.run_rows(input_index, slices.chunk.begin(chunk), None if stamps is None else iter(stamps))
        end -= slices.chunk.end()
        done = end - position
        if end < len(rows):
            self._batch = (input_index, rows, timestamps, end, origin)
        self.records_in += done
        self._chain.counts.records_in += done
        slices.sizer.measured(done, slices.seconds() - started)
        return True

    def _read_ahead(self, input_index: int, rows: list[Any], position: int) -> int:
        """Reads state for the rows from `position` on, unless that was done; returns the end of those rows."""
        ahead = self._ahead
        if ahead is None:
            return len(rows)
        if self._read_to <= position < len(rows):
            # In equal parts: each row of a small rest would cost more.
            left = len(rows) - position
            end = position + ceil(left / ceil(left / self._rows_ahead(ahead)))
            started = self._slices.seconds()
            if not self._chain.read_ahead(input_index, rows[position:end]):
                return len(rows)
            ahead.measured(end - position, self._slices.seconds() - started)
            self._read_to = end
        return self._read_to

    def _rows_ahead(self, ahead: SliceSizer) -> int:
        return max(1, min(ahead.rows, self._chain.head.context.state.read_ahead_rows))

    def _with_following(self, batch: RowBatch, channel: InputChannel) -> RowBatch:
        """A batch joined with those behind it in its channel, as far as state is read for them at once."""
        assert self._ahead is not None
        wanted = self._rows_ahead(self._ahead)
        if len(batch) >= wanted or not channel.rows_follow:
            return batch
        rows, timestamps = list(batch.rows), batch.timestamps
        while len(rows) < wanted and channel.rows_follow:
            following = channel.take()
            assert isinstance(following, RowBatch)
            if timestamps is not None or following.timestamps is not None:
                timestamps = [*(timestamps or [None] * len(rows)), *stamps_of(following)]
            rows += following.rows
        return RowBatch(rows, timestamps)

    def _on_control(self, position: int, entry: GateChannel, element: ControlElement) -> None:
        valve = self._gate.valves[entry.input_index]
        if isinstance(element, Watermark):
            valve.advance(entry, element.timestamp)
            self._gate.time_changed()
            self.watermarks.advance()
        elif isinstance(element, WatermarkStatus):
            valve.set_idle(entry, element.idle)
            self._gate.time_changed()
            self.watermarks.advance()
        elif isinstance(element, CheckpointBarrier):
            self._cut(self._gate.barriers.barrier(position, element))
        elif isinstance(element, LatencyMarker):
            self._latency.arrived(element)
            self._outputs.forward_marker(element)
        elif isinstance(element, LoopMarker):
            assert self.loops is not None, "markers go along edges of loops alone"
            self.loops.arrived(position, element)
        elif isinstance(element, EndOfData):
            self._gate.end_channel(entry)
            valve.channel_ended()
            self._gate.time_changed()
            self.watermarks.advance()
            if self.loops is not None:
                self.loops.proceed()
            if not self._gate.all_ended:
                self._cut(self._gate.barriers.channel_ended())
            elif not self.watermarks.firing:
                self._ended()
