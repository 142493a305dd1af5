"""RecordsInFlight: gathers the records in flight of an unaligned checkpoint at one task, then hands them over.

Owner: the task thread until everything is gathered, then the snapshot thread, which writes. The task's part
is handed over once every input channel has delivered the barrier and no output holds it back. Must not decide
when a task cuts (that is the gate's BarrierHandler), nor know operators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from yarrow.container.chain.pending_snapshot import PendingSubtaskSnapshot
from yarrow.container.network.barrier_handler import ReadyCheckpoint, overtakes, overtaking_time_ms
from yarrow.container.network.channel_recording import ChannelRecording
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.input_gate import InputGate
from yarrow.container.network.partition import Partition
from yarrow.container.protocol.errors import CheckpointRefusedError
from yarrow.runtime.common.clock import Clock, perf_counter
from yarrow.runtime.data.elements import CheckpointBarrier
from yarrow.runtime.snapshot.handles import ChannelStateHandle
from yarrow.runtime.snapshot.output import SnapshotOutput

Deliver = Callable[[PendingSubtaskSnapshot], None]


class RecordsInFlight:
    """The records in flight of one checkpoint; the PendingChannelStates of the task's part."""

    def __init__(
        self,
        barrier: CheckpointBarrier,
        partitions: Sequence[Partition],
        recovered: Sequence[ChannelRecording],
        clock: Clock,
    ) -> None:
        self.barrier = barrier
        self.checkpoint_id = barrier.checkpoint_id
        self._partitions = partitions
        self._clock = clock
        self._recordings = list(recovered)
        self._inputs: list[tuple[InputChannel, ChannelRecording]] = []
        self._began = perf_counter()
        #: Outputs at which the barrier still waits in the queue.
        self._held_back: list[Partition] = []
        #: True if the barrier has overtaken records.
        self.unaligned = overtaking_time_ms(barrier) <= clock.epoch_ms()
        self._handed_over: tuple[PendingSubtaskSnapshot, Deliver] | None = None

    # ------------------------------------------------------------------ task thread

    def record_input(self, channel: InputChannel, recording: ChannelRecording) -> None:
        """Records the channel's further records before the barrier for the checkpoint."""
        channel.record(recording)
        self._inputs.append((channel, recording))
        self._recordings.append(recording)

    def send_barrier(self, barrier: CheckpointBarrier) -> None:
        """Sends the barrier on all outputs: ahead of waiting records, or behind them within the aligned timeout."""
        for partition in self._partitions:
            if self.unaligned:
                self._recordings += partition.broadcast_ahead(barrier)
            else:
                partition.broadcast_control(barrier)
                if partition.holds_barrier(self.checkpoint_id):
                    self._held_back.append(partition)

    def hand_over(self, snapshot: PendingSubtaskSnapshot, deliver: Deliver) -> None:
        """Takes the task's part, which is delivered when everything is gathered."""
        self._handed_over = (snapshot, deliver)
        self.proceed()

    def proceed(self) -> bool:
        """Looks at inputs and outputs; True when the part has been delivered."""
        for channel, recording in self._inputs:
            if not recording.complete:
                channel.look_for_barrier()
        if self._held_back and overtaking_time_ms(self.barrier) <= self._clock.epoch_ms():
            self.unaligned = True
            for partition in self._held_back:
                self._recordings += partition.pull_ahead(self.checkpoint_id)
            self._held_back.clear()
        self._held_back = [p for p in self._held_back if p.holds_barrier(self.checkpoint_id)]
        if self._held_back or self._handed_over is None or any(not r.complete for _, r in self._inputs):
            return False
        snapshot, deliver = self._handed_over
        self._handed_over = None
        self._inputs.clear()
        gathering_ms = 1000 * (perf_counter() - self._began)
        snapshot.metrics = msgspec.structs.replace(
            snapshot.metrics,
            alignment_ms=snapshot.metrics.alignment_ms + gathering_ms,
            unaligned=self.unaligned,
        )
        deliver(snapshot)
        return True

    @property
    def size(self) -> int:
        """Bytes gathered so far."""
        return sum(recording.size for recording in self._recordings)

    @property
    def timeout_ms(self) -> int | None:
        """Epoch ms at which `proceed` lets the barrier overtake at outputs."""
        return overtaking_time_ms(self.barrier) if self._held_back else None

    def drop(self) -> None:
        """Drops the checkpoint: nothing more is gathered or delivered."""
        for channel, _ in self._inputs:
            channel.stop_recording()
        self._inputs.clear()
        self._held_back.clear()
        self._recordings.clear()
        if self._handed_over is not None:
            snapshot, _ = self._handed_over
            self._handed_over = None
            snapshot.discard()
            snapshot.settled()

    # ------------------------------------------------------------------ snapshot thread

    def write(self, output: SnapshotOutput) -> tuple[ChannelStateHandle, ...]:
        """See PendingChannelStates."""
        handles = []
        while self._recordings:
            recording = self._recordings.pop(0)
            if not recording:
                continue
            origin = recording.origin
            handles.append(
                ChannelStateHandle(
                    edge=origin.edge,
                    producer=origin.producer,
                    consumer=origin.consumer,
                    at_producer=recording.at_producer,
                    rows=origin.rows,
                    consumers=origin.consumers,
                    max_parallelism=origin.max_parallelism,
                    handle=output.write(recording.frames()),
                )
            )
        return tuple(handles)


class InFlightRecorder:
    """The unaligned checkpoints of one task, one after the other."""

    def __init__(
        self, gate: InputGate, partitions: Sequence[Partition], clock: Clock, max_bytes: int
    ) -> None:
        self._gate = gate
        self._partitions = partitions
        self._clock = clock
        self._max_bytes = max_bytes
        #: The checkpoint that is not delivered yet.
        self._current: RecordsInFlight | None = None

    def begin(self, ready: ReadyCheckpoint, at_hand: Sequence[ChannelRecording]) -> RecordsInFlight | None:
        """Begins at a cut. `at_hand` are records that the task has taken from its channels and not processed.

        Returns None if the checkpoint holds no records in flight: barriers then keep their places.
        """
        if not overtakes(ready.barrier):
            return None
        self.drop()
        gathered = RecordsInFlight(ready.barrier, self._partitions, at_hand, self._clock)
        for position in ready.overtaken:
            channel = self._gate.channels[position].channel
            assert channel.origin is not None, "only such channels are overtaken"
            gathered.record_input(channel, ChannelRecording(channel.origin, ready.barrier.checkpoint_id))
        self._current = gathered
        return gathered

    def proceed(self) -> None:
        """Continues the present checkpoint. Raises CheckpointRefusedError if it would hold too much."""
        current = self._current
        if current is None:
            return
        if current.proceed():
            self._current = None
        elif current.size > self._max_bytes:
            raise CheckpointRefusedError(
                f"more than {self._max_bytes} bytes came on inputs whose barriers are late: the checkpoint"
                " would hold far more than the records in flight. Some producer holds its barrier back. Look"
                " for the task with the longest alignment; it may read a forward, rescale or broadcast edge"
            )

    @property
    def present(self) -> int | None:
        """The checkpoint that is not delivered yet; None = none."""
        return None if self._current is None else self._current.checkpoint_id

    @property
    def timeout_ms(self) -> int | None:
        """Epoch ms at which `proceed` is due; None = only after an event."""
        return None if self._current is None else self._current.timeout_ms

    def drop(self, checkpoint_id: int | None = None) -> None:
        """Drops that checkpoint or an earlier one; None = any."""
        current = self._current
        if current is not None and (checkpoint_id is None or current.checkpoint_id <= checkpoint_id):
            self._current = None
            current.drop()
