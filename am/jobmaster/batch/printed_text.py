"""PrintedText: what user functions of a bounded job have printed so far, so that a second run prints nothing twice.

Owner: the BatchJobMaster's loop. Pure. Runs print the same text by each operator, because they read the same records
in one order. How the texts of two operators alternate depends on the polls of a source, so each counts by itself.
"""

from __future__ import annotations

from collections import Counter

from yarrow.runtime.common.ids import JobVertexID
from yarrow.runtime.rpc.messages import BatchOutput


class PrintedText:
    """How many characters of each printing operator's subtask have been printed."""

    def __init__(self) -> None:
        self._run = 0
        self._printed = Counter[tuple[JobVertexID, int, int]]()

    def new_text(self, output: BatchOutput) -> str:
        """The part that no run has sent before; "" = all of it is known, or a former run sends late."""
        if output.run < self._run:
            return ""
        self._run = output.run
        printer = (output.vertex_id, output.subtask, output.printer)
        known = self._printed[printer] - output.first
        self._printed[printer] = max(self._printed[printer], output.first + len(output.text))
        return output.text[max(0, known) :]
