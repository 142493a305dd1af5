"""UnfitLauncher: the launcher of a TaskExecutor whose workers cannot run in the configured interpreter.

Owner: the TaskExecutor's event loop. On YARN, a TaskExecutor that ended for such a reason would only be
replaced by another, which would end too. So it comes up, and a job that gets one of its slots fails with the
reason. Starts no process. Jobs with their own interpreter get workers as usual.
"""

from __future__ import annotations

import socket
import sys

from yarrow.container.launch.process_start import LaunchSettings
from yarrow.container.launch.worker_launcher import RunningWorker, SpawnLauncher
from yarrow.container.protocol.errors import UnfitInterpreterError
from yarrow.runtime.common.ids import WorkerID


class UnfitLauncher(SpawnLauncher):
    """Starts no worker, except for a job's own interpreter, which was tried."""

    def __init__(self, settings: LaunchSettings, reason: str) -> None:
        """`reason` names the setting, the attempt, and what to do."""
        super().__init__(settings._replace(executable=sys.executable))
        self._reason = reason

    async def launch(
        self, worker_id: WorkerID, process_name: str, raw_output: int
    ) -> tuple[RunningWorker, socket.socket]:
        """Raises UnfitInterpreterError with the TaskExecutor and its node."""
        where = f"the worker {worker_id} on {socket.gethostname()}"
        raise UnfitInterpreterError(
            f"{where} cannot be started: {self._reason} Without the setting workers run in the interpreter of their"
            " TaskExecutor."
        )
