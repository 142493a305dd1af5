"""InputWatermarks: what watermarks and idleness of a task's inputs mean for its operators and outputs.

Owner: the task thread. Timers that a watermark makes due fire as far as a slice goes; until all have, the task takes no
input. Must not know channels: each input's valve combines its own.
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
        #: True while event-time timers are left that the watermark made due.
        self.firing = False
        #: End of the present slice (perf_counter).
        self.deadline = 0.0

    def advance(self) -> None:
        """Hands on what a change at the inputs means for the outputs: active before, idle after the watermark."""
        if self._idle and not self._gate.idle:
            self._idle = False
            self._time.set_input_idle(False)
        risen = self._gate.combined_watermark
        if risen > self._watermark:
            self._watermark = risen
            self._time.begin(risen)
        self.proceed()

    def proceed(self) -> bool:
        """Fires what the watermark made due, as far as the slice goes; no input is taken until all has fired (True)."""
        self.firing = not self._time.proceed(self.deadline)
        if self.firing:
            return False
        if self._gate.idle and not self._idle:
            self._idle = True
            self._time.set_input_idle(True)
        return True
