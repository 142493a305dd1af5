"""ChildProcess: a process of the cluster that this one starts: it reads its bootstrap from its standard input.

Owner: the loop on which it was started. The pipe stays open; its end tells the child that this process has died.
The child has its own session, all of which is killed once the child has ended. Must not put a secret into argv or
the environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from yarrow.runtime.common.private_files import private_opener

#: Bytes at the end of a dead child's .err file that its cause quotes.
_QUOTED = 2000


class ChildProcess:
    """One child, from its start to the last process of its session."""

    def __init__(self, process: asyncio.subprocess.Process, error_file: Path) -> None:
        self._process = process
        self._error_file = error_file
        self._watcher = asyncio.get_running_loop().create_task(self._watch())
        #: The end was asked for.
        self.is_released = False

    @classmethod
    async def start(
        cls,
        command: tuple[str, ...],
        error_file: Path,
        output: int | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> ChildProcess:
        """Starts a process that waits for its bootstrap.

        Its standard output goes to the descriptor `output`, else to the error file. `environment`: its variables;
        None = those of this process. Raises OSError.
        """
        await asyncio.to_thread(os.makedirs, error_file.parent, exist_ok=True)
        # A local file, opened once a process.
        with open(error_file, "ab", opener=private_opener) as errors:  # noqa: ASYNC230
            standard_output: IO[bytes] | int = errors if output is None else output
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.PIPE,
                stdout=standard_output,
                stderr=errors,
                env=environment,
                start_new_session=True,
            )
        return cls(process, error_file)

    @property
    def pid(self) -> int:
        """Its process id, which is that of its session too."""
        return self._process.pid

    async def give(self, bootstrap: bytes) -> None:
        """Sends the bootstrap; the end of a child that died before it read is told by `wait`."""
        assert self._process.stdin is not None
        self._process.stdin.write(bootstrap)
        with contextlib.suppress(ConnectionError):
            await self._process.stdin.drain()

    async def wait(self) -> str:
        """Returns when nothing of its session is left, with a description of its end."""
        status = await asyncio.shield(self._watcher)
        return await asyncio.to_thread(self._describe_end, status)

    async def end(
        self, grace: float, has_worked: Callable[[], bool] = lambda: False, longest: float = 0.0
    ) -> None:
        """Closes the pipe, which asks the child to end; kills its session after `grace` seconds.

        `has_worked` is asked then: whether the child has worked since it was asked last. One that has gets the grace
        again, until `longest` seconds are over.
        """
        self.is_released = True
        if self._process.stdin is not None:
            self._process.stdin.close()
        left = max(grace, longest)
        while not await self._ends_within(min(grace, left)):
            left -= grace
            if left <= 0.0 or not has_worked():
                _kill_session(self.pid)
                # A caller that is cancelled must not cancel the watcher: `wait` of others needs it.
                await asyncio.shield(self._watcher)
                return

    async def _ends_within(self, seconds: float) -> bool:
        try:
            await asyncio.wait_for(asyncio.shield(self._watcher), seconds)
        except TimeoutError:
            return False
        return True

    async def _watch(self) -> int:
        status = await self._process.wait()
        # The kill reaches everything that the child left in its session.
        _kill_session(self.pid)
        return status

    def _describe_end(self, status: int) -> str:
        how = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"
        if self.is_released:
            return f"released ({how})"
        try:
            tail = self._error_file.read_bytes()[-_QUOTED:].decode(errors="replace").strip()
        except OSError:
            tail = ""
        return f"the process ended: {how}" + (
            f"; the end of {self._error_file.name}:\n{tail}" if tail else ""
        )


def _kill_session(leader: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
