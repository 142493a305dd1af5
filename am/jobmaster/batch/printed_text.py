"""PrintedText: what user functions of a bounded job have printed so far, so that a second run prints nothing twice.

Owner: the BatchJobMaster's loop. Pure. Runs print the same text, because they read the same records in one order.
"""

from __future__ import annotations

from collections import Counter

from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.rpc.messages import BatchOutput


class PrintedText:
    """How much text of each subtask has been printed, and how much the present run has sent."""

    def __init__(self) -> None:
        self._run = 0
        self._printed = Counter[tuple[JobVertexID, int]]()
        self._sent = Counter[tuple[JobVertexID, int]]()

    def new_text(self, output: BatchOutput) -> str:
        """The part that no run has sent before; "" = all of it is known, or a former run sends late."""
        if output.run < self._run:
            return ""
        if output.run > self._run:
            self._run = output.run
            self._sent.clear()
        subtask = (output.vertex_id, output.subtask)
        known = self._printed[subtask] - self._sent[subtask]
        self._sent[subtask] += len(output.text)
        self._printed[subtask] = max(self._printed[subtask], self._sent[subtask])
        return output.text[max(0, known) :]
