"""BarrierHandler: gathers the barriers of a task's channels, and decides when the task cuts.

For exactly-once, channels block behind their barriers. For unaligned checkpoints, overtaken records are
recorded.

Owner: the task thread. Tasks know only `BarrierHandler`; the implementation decides about records in flight.
Must not snapshot anything, and must not know operators or outputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from yarrow.container.network.input_channel import InputChannel
from yarrow.runtime.common.clock import Clock, perf_counter
from yarrow.runtime.data.elements import CheckpointBarrier


class ReadyCheckpoint(NamedTuple):
    """A checkpoint at whose cut a task now stands."""

    barrier: CheckpointBarrier
    #: Seconds from the first barrier until now.
    alignment_seconds: float
    #: Seconds from the checkpoint's trigger to the first barrier.
    start_delay_seconds: float
    #: Bytes that its channels received during the alignment.
    processed_bytes: int
    #: Channels whose barriers have not been taken: the records before these barriers belong to the
    #: checkpoint.
    overtaken: tuple[int, ...] = ()


class GateChannelView(Protocol):
    """A gate's channel as a handler sees it."""

    @property
    def channel(self) -> InputChannel: ...


class BarrierListener(Protocol):
    """Hears of a handler's decisions, besides the cuts that it returns."""

    def checkpoint_announced(self, barrier: CheckpointBarrier) -> None:
        """Takes the first sign of a checkpoint: its cut will follow."""
        ...

    def alignment_given_up(self, barrier: CheckpointBarrier, reason: str) -> None:
        """Takes note that the checkpoint's barriers will never be complete here."""
        ...


class BarrierHandler(Protocol):
    """Gathers barriers.

    Each method returns the checkpoints for which the task must cut after the call, in rising order.
    """

    listener: BarrierListener | None

    def barrier(self, position: int, barrier: CheckpointBarrier) -> Sequence[ReadyCheckpoint]:
        """Takes a barrier of the channel at `position`; it may also come after the end of data."""
        ...

    def announced(self, position: int, barrier: CheckpointBarrier) -> Sequence[ReadyCheckpoint]:
        """Takes note of a barrier that may overtake, at the end of the queue of the channel at `position`."""
        ...

    def timed_out(self) -> Sequence[ReadyCheckpoint]:
        """Takes note that time has passed; `next_timeout_ms` says when this is needed."""
        ...

    @property
    def next_timeout_ms(self) -> int | None:
        """Epoch ms at which an unaligned checkpoint stops waiting for barriers; None = none does."""
        ...

    @property
    def alignment_seconds(self) -> float:
        """Seconds of the present alignment so far, or of the last one. Any thread."""
        ...

    @property
    def start_delay_seconds(self) -> float:
        """Seconds from the latest checkpoint's trigger to its first barrier here. Any thread."""
        ...

    @property
    def is_aligning(self) -> bool:
        """True while a checkpoint has barriers of some channels and waits for those of others."""
        ...

    def trigger(self, barrier: CheckpointBarrier) -> Sequence[ReadyCheckpoint]:
        """Begins the checkpoint here: channels that are still open will end without a barrier."""
        ...

    def channel_ended(self) -> Sequence[ReadyCheckpoint]:
        """Takes the end of a channel, which counts as its barrier for all later checkpoints."""
        ...

    def abort(self, checkpoint_id: int) -> None:
        """Aborts a checkpoint: nothing waits for it, and its later barriers are dropped."""
        ...


class _Alignment:
    """A checkpoint of which some barriers have arrived."""

    def __init__(self, barrier: CheckpointBarrier, now: float, delay: float, received: int) -> None:
        self.barrier = barrier
        self.arrived: set[int] = set()
        self.started = now
        self.delay = delay
        self.received = received

    @property
    def blocks(self) -> bool:
        """True if a channel behind its barrier must wait for the others."""
        options = self.barrier.options
        return options is None or options.exactly_once


def overtakes(barrier: CheckpointBarrier) -> bool:
    """Whether a barrier may overtake records."""
    return barrier.options is not None and barrier.options.unaligned and barrier.options.exactly_once


def overtaking_time_ms(barrier: CheckpointBarrier) -> int:
    """Epoch ms from which on a barrier overtakes; before that it keeps its place."""
    assert barrier.options is not None
    return barrier.timestamp_ms + barrier.options.aligned_timeout_ms


class AligningBarrierHandler:
    """Decides when a task cuts, by the mode of the checkpoint.

    Exactly once: a channel blocks behind its barrier until all open channels have delivered theirs. At least
    once: barriers are counted and no channel blocks. Unaligned: like exactly once until the aligned timeout.
    Then the task cuts as soon as all other channels have an origin, so that the checkpoint can hold their
    records.

    A channel delivers barriers in the order of their checkpoints. A later barrier on a channel therefore
    aborts an earlier checkpoint whose barrier the channel has not delivered.
    """

    def __init__(self, channels: Sequence[GateChannelView], clock: Clock) -> None:
        self.listener: BarrierListener | None = None
        self._channels = channels
        self._clock = clock
        #: By checkpoint id, rising.
        self._pending: dict[int, _Alignment] = {}
        self._latest = -1
        self._aborted: set[int] = set()
        #: The last alignment that began, and the seconds of the last one that ended.
        self._begun: _Alignment | None = None
        self._aligned_for = 0.0

    def barrier(self, position: int, barrier: CheckpointBarrier) -> Sequence[ReadyCheckpoint]:
        for earlier in [a for a in self._pending.values() if a.barrier.checkpoint_id < barrier.checkpoint_id]:
            if position not in earlier.arrived:
                self._give_up(
                    earlier,
                    f"the barrier of checkpoint {barrier.checkpoint_id} came before the barrier of"
                    " this checkpoint",
                )
        if self._is_over(barrier.checkpoint_id):
            return ()
        if barrier.checkpoint_id not in self._pending and self._was_overtaken(barrier):
            return ()
        alignment = self._alignment(barrier)
        alignment.arrived.add(position)
        if alignment.blocks:
            self._channels[position].channel.blocked = True
        return self._completed()

    def announced(self, position: int, barrier: CheckpointBarrier) -> Sequence[ReadyCheckpoint]:
        if not overtakes(barrier) or self._is_over(barrier.checkpoint_id):
            return ()
        self._alignment(barrier)
        return self._completed()

    def timed_out(self) -> Sequence[ReadyCheckpoint]:
        return self._completed() if any(overtakes(a.barrier) for a in self._pending.values()) else ()

    @property
    def next_timeout_ms(self) -> int | None:
        if not self._pending:
            return None
        now = self._clock.epoch_ms()
        times = [overtaking_time_ms(a.barrier) for a in self._pending.values() if overtakes(a.barrier)]
        # A timeout in the past waits for channels that cannot be overtaken.
        return min((time for time in times if time > now), default=None)

    @property
    def alignment_seconds(self) -> float:
        begun = self._begun
        if begun is not None and begun.barrier.checkpoint_id in self._pending:
            return perf_counter() - begun.started
        return self._aligned_for

    @property
    def start_delay_seconds(self) -> float:
        begun = self._begun
        return 0.0 if begun is None else begun.delay

    @property
    def is_aligning(self) -> bool:
        return any(alignment.arrived for alignment in list(self._pending.values()))

    def trigger(self, barrier: CheckpointBarrier) -> Sequence[ReadyCheckpoint]:
        if self._is_over(barrier.checkpoint_id):
            return ()
        self._alignment(barrier)
        return self._completed()

    def channel_ended(self) -> Sequence[ReadyCheckpoint]:
        return self._completed() if self._pending else ()

    def abort(self, checkpoint_id: int) -> None:
        if checkpoint_id <= self._latest:
            return
        self._aborted.add(checkpoint_id)
        alignment = self._pending.pop(checkpoint_id, None)
        if alignment is not None:
            self._release(alignment.arrived)

    def _was_overtaken(self, barrier: CheckpointBarrier) -> bool:
        """True, and noted, if another channel has delivered a later barrier and will not deliver this one."""
        later = [a for a in self._pending.values() if a.barrier.checkpoint_id > barrier.checkpoint_id]
        if not any(alignment.arrived for alignment in later):
            return False
        self._aborted.add(barrier.checkpoint_id)
        if self.listener is not None:
            reason = (
                f"the barrier of checkpoint {later[0].barrier.checkpoint_id} came before the barrier of"
                " this checkpoint"
            )
            self.listener.alignment_given_up(barrier, reason)
        return True

    def _is_over(self, checkpoint_id: int) -> bool:
        return checkpoint_id <= self._latest or checkpoint_id in self._aborted

    def _alignment(self, barrier: CheckpointBarrier) -> _Alignment:
        alignment = self._pending.get(barrier.checkpoint_id)
        if alignment is None:
            delay = max(0.0, (self._clock.epoch_ms() - barrier.timestamp_ms) / 1000)
            alignment = self._begun = _Alignment(barrier, perf_counter(), delay, self._received())
            self._pending[barrier.checkpoint_id] = alignment
            self._pending = dict(sorted(self._pending.items()))
            if self.listener is not None:
                self.listener.checkpoint_announced(barrier)
        return alignment

    def _received(self) -> int:
        return sum(entry.channel.received_bytes for entry in self._channels)

    def _completed(self) -> Sequence[ReadyCheckpoint]:
        opened = {index for index, entry in enumerate(self._channels) if not entry.channel.ended}
        ready = []
        for alignment in list(self._pending.values()):
            checkpoint_id = alignment.barrier.checkpoint_id
            left = opened - alignment.arrived
            if checkpoint_id not in self._pending or (left and not self._overtakes(alignment, left)):
                continue
            del self._pending[checkpoint_id]
            self._latest = max(self._latest, checkpoint_id)
            self._release(alignment.arrived)
            for earlier in [a for a in self._pending.values() if a.barrier.checkpoint_id < checkpoint_id]:
                self._give_up(
                    earlier,
                    f"the barrier of checkpoint {checkpoint_id} has overtaken the barrier of this checkpoint",
                )
            self._aligned_for = perf_counter() - alignment.started
            ready.append(
                ReadyCheckpoint(
                    alignment.barrier,
                    self._aligned_for,
                    alignment.delay,
                    self._received() - alignment.received,
                    tuple(sorted(left)),
                )
            )
        if ready:
            self._aborted = {number for number in self._aborted if number > self._latest}
        return ready

    def _overtakes(self, alignment: _Alignment, left: Iterable[int]) -> bool:
        """Whether the task may cut before the barriers of these channels have been taken."""
        barrier = alignment.barrier
        return (
            overtakes(barrier)
            and all(self._channels[position].channel.origin is not None for position in left)
            and self._clock.epoch_ms() >= overtaking_time_ms(barrier)
        )

    def _give_up(self, alignment: _Alignment, reason: str) -> None:
        checkpoint_id = alignment.barrier.checkpoint_id
        del self._pending[checkpoint_id]
        self._aborted.add(checkpoint_id)
        self._release(alignment.arrived)
        if self.listener is not None:
            self.listener.alignment_given_up(alignment.barrier, reason)

    def _release(self, positions: Iterable[int]) -> None:
        held = {
            position
            for alignment in self._pending.values()
            if alignment.blocks
            for position in alignment.arrived
        }
        for position in positions:
            if position not in held:
                self._channels[position].channel.blocked = False
