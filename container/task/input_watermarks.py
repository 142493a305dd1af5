"""InputWatermarks: passes watermarks and idleness of a task's inputs to its operators and outputs.

Owner: the task thread. A watermark makes timers due, and as many of them fire in a slice as fit. Until all
have fired, the task takes no input. Must not know channels: each input combines its own.
"""

from __future__ import annotations

from yarrow.container.chain.chain_time import ChainTime
from yarrow.container.network.input_gate import InputGate
from yarrow.runtime.data.elements import MIN_TIMESTAMP


class InputWatermarks:
    """Event time at the head of one chain."""

    def __init__(self, gate: InputGate, time: ChainTime) -> None:
        self._gate = gate
        self._time = time
        self._idle = False
        #: The last watermark of all inputs together.
        self._watermark = MIN_TIMESTAMP
        #: True while event-time timers that the watermark made due have not fired.
        self.firing = False
        #: End of the present slice (perf_counter).
        self.deadline = 0.0

    def advance(self) -> None:
        """Forwards a change of the inputs to the outputs: activity before the watermark, idleness after it."""
        if self._idle and not self._gate.idle:
            self._idle = False
            self._time.set_input_idle(False)
        risen = self._gate.combined_watermark
        if risen > self._watermark:
            self._watermark = risen
            self._time.begin(risen)
        self.proceed()

    def proceed(self) -> bool:
        """Fires due timers, as many as fit into the slice; True when all have fired and input may be taken."""
        self.firing = not self._time.proceed(self.deadline)
        if self.firing:
            return False
        if self._gate.idle and not self._idle:
            self._idle = True
            self._time.set_input_idle(True)
        return True
