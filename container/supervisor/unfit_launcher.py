"""UnfitLauncher: for a TaskExecutor whose workers' interpreter will not do: each slot that is asked for says why.

Owner: the TaskExecutor's event loop. On YARN a TaskExecutor that ends for such a reason is only replaced by another,
which ends too: so it comes up, and the job that gets one of its slots fails with the reason. Starts no process; jobs
that bring an interpreter of their own have workers as ever.
"""

from __future__ import annotations

import socket
import sys
from dataclasses import replace

from yarrow.container.launch.worker_launcher import LaunchSettings, RunningWorker, SpawnLauncher
from yarrow.container.protocol.errors import UnfitInterpreterError
from yarrow.runtime.common.ids import WorkerID


class UnfitLauncher(SpawnLauncher):
    """Starts no worker; one for a job's own interpreter, which was tried, does."""

    def __init__(self, settings: LaunchSettings, reason: str) -> None:
        """`reason` names the setting, what was tried, and what to do."""
        super().__init__(replace(settings, executable=sys.executable))
        self._reason = reason

    async def launch(
        self, worker_id: WorkerID, process_name: str, raw_output: int
    ) -> tuple[RunningWorker, socket.socket]:
        """Raises UnfitInterpreterError, naming the TaskExecutor and its node."""
        where = f"the worker {worker_id} on {socket.gethostname()}"
        raise UnfitInterpreterError(
            f"{where} cannot be started: {self._reason} Without the setting workers run in the interpreter of their"
            " TaskExecutor."
        )
