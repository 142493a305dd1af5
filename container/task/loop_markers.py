"""LoopMarkers: carries markers of loops through one task: from all its channels of the loop to all its outputs there.

Owner: the task thread. A marker goes on, like a barrier, when it has come on all open channels of the loop. No channel
waits for it. Rows behind a marker may overtake it, which does no harm: docs/design/0040. Must not decide
when a loop is over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, cast

from yarrow.container.chain.operator_chain import OperatorChain
from yarrow.container.network.input_gate import InputGate
from yarrow.container.operators.loop_ends import LoopEnd
from yarrow.container.task.task_outputs import TaskOutputs
from yarrow.runtime.data.elements import LoopMarker
from yarrow.runtime.graph.loops.loop_paths import LoopPath


class LoopOfTask(NamedTuple):
    """A loop with the channels of one task that carry its markers."""

    path: LoopPath
    #: Positions in the gate.
    channels: tuple[int, ...]


class LoopMarkers:
    """The markers of all loops at one task; the LoopMarkerSender of a head."""

    def __init__(
        self, loops: Sequence[LoopOfTask], chain: OperatorChain, gate: InputGate, outputs: TaskOutputs
    ) -> None:
        self._loops = {loop.path.number: loop for loop in loops}
        self._chain = chain
        self._gate = gate
        self._outputs = outputs
        #: The last marker of each channel, by loop and position.
        self._arrived: dict[int, dict[int, LoopMarker]] = {number: {} for number in self._loops}
        #: The last round that went on.
        self._passed = dict.fromkeys(self._loops, 0)
        self._tails: dict[int, list[LoopEnd]] = {}
        for operator in chain.operators:
            if operator.is_loop_end:
                tail = cast(LoopEnd, operator)
                self._tails.setdefault(tail.closes_loop, []).append(tail)
        if chain.head.emits_again:
            chain.head.markers = self

    @property
    def quiet_rounds(self) -> int:
        """Rounds in a row without feedback behind which a loop of this task is over."""
        return max(loop.path.quiet_rounds for loop in self._loops.values())

    def arrived(self, position: int, marker: LoopMarker) -> None:
        """Takes a marker of a channel. It may be of a loop that has ended before this task."""
        self._arrived[marker.loop][position] = marker
        self.proceed()

    def proceed(self) -> None:
        """Sends markers on that have come on all open channels, unless results of former rows are to come."""
        if self._chain.awaits_results:
            return
        for number, loop in self._loops.items():
            arrived = self._arrived[number]
            opened = [p for p in loop.channels if not self._gate.channels[p].channel.ended]
            markers = [arrived[p] for p in opened if p in arrived]
            if not markers or len(markers) < len(opened):
                continue
            round_ = min(marker.round for marker in markers)
            if round_ > self._passed[number]:
                self._passed[number] = round_
                quiet = min(marker.quiet_rounds for marker in markers)
                self.send(LoopMarker(number, round_, quiet))

    def send(self, marker: LoopMarker) -> None:
        """Sends a marker behind everything that was emitted so far."""
        self._chain.time.settle()
        edges = self._loops[marker.loop].path.edges
        for partition in self._outputs.partitions:
            if partition.edge.index in edges:
                partition.broadcast_control(marker)
        for tail in self._tails.get(marker.loop, ()):
            tail.return_marker(marker)
