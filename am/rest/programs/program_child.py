"""The child process of a user's program, seen from a master: a session of its own, and a pipe for the child's results.

Owner: the master's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path

from yarrow.am.rest.programs.messages import MAX_FRAME_BYTES


@contextlib.asynccontextmanager
async def program_child(
    command: Callable[[int], Sequence[str]], output: int, cwd: Path, env: Mapping[str, str]
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    """The running child and its results; afterwards nothing is left of its session.

    `command` gets the descriptor to which the child writes its results. `output` takes the child's printed output:
    a descriptor, or asyncio.subprocess.PIPE.
    """
    read_end, write_end = os.pipe()
    results = asyncio.StreamReader(limit=MAX_FRAME_BYTES)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(results), os.fdopen(read_end, "rb", 0)
    )
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *command(write_end),
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                pass_fds=(write_end,),
                start_new_session=True,
                cwd=cwd,
                env=env,
            )
        finally:
            os.close(write_end)
        try:
            yield process, results
        finally:
            kill_session(process)
            await process.wait()
            if process.stdin is not None:
                process.stdin.close()
    finally:
        transport.close()


def kill_session(process: asyncio.subprocess.Process) -> None:
    """Kills the child and everything that it has started."""
    # The event loop reaps the leader, but its session keeps its number while any of its processes lives.
    # Without any, the number is free and the call fails.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def how_it_ended(status: int) -> str:
    """What the exit status of a child says, as the end of a sentence."""
    return (
        f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
    )
