"""The child process of an application's main(), seen from the master.

Owner: the master's loop. The child leads a session of its own; after its end, nothing of that session is
left. The program's output goes to a file beside the master's log.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from yarrow.am.yarn.modes.program_messages import (
    ProgramEnd,
    ProgramOutcome,
    ProgramStart,
    decode_end,
    encode_start,
)
from yarrow.runtime.interpreters.environment import environment_for

#: Found by name: the master never imports modules that may run user code.
_MODULE = "yarrow.cli.application_program"
#: Bytes at the end of the output that are quoted for a program without a last message.
_TAIL_BYTES = 4096
_MAX_END_BYTES = 16 << 20


class Sessions(Protocol):
    """Registers sessions that must not outlive this process."""

    def add(self, session: int) -> None: ...

    def remove(self, session: int) -> None: ...


@dataclass(frozen=True, slots=True)
class ProgramPlace:
    """The command, folder and files of the child."""

    working_directory: Path
    #: File for the program's output.
    output: Path
    interpreter: str = sys.executable

    def command(self, results: int) -> tuple[str, ...]:
        """The child's command; the child reports the end of main() to the descriptor."""
        return (self.interpreter, "-u", "-m", _MODULE, str(results))


async def run_main(start: ProgramStart, place: ProgramPlace, sessions: Sessions) -> ProgramEnd:
    """Runs main() to its end. A process that ends without a last message has failed; a cancel kills it."""
    async with _child(place, sessions) as (process, results):
        assert process.stdin is not None
        process.stdin.write(encode_start(start))
        # The exit status reports a child that died before it read.
        with contextlib.suppress(ConnectionError):
            await process.stdin.drain()
        said = await results.read(_MAX_END_BYTES)
        while said and (more := await results.read(_MAX_END_BYTES)):
            said += more
        if not said:
            status = await process.wait()
            return ProgramEnd(outcome=ProgramOutcome.FAILED, text=_unexplained(status, place.output))
    try:
        return decode_end(said)
    except msgspec.DecodeError as error:
        return ProgramEnd(
            outcome=ProgramOutcome.FAILED,
            text=(f"the report of the program's process cannot be read: {error}"),
        )


@contextlib.asynccontextmanager
async def _child(
    place: ProgramPlace, sessions: Sessions
) -> AsyncIterator[tuple[asyncio.subprocess.Process, asyncio.StreamReader]]:
    read_end, write_end = os.pipe()
    results = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(results), os.fdopen(read_end, "rb", 0)
    )
    output = os.open(
        place.output, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o640
    )
    try:
        try:
            process = await asyncio.create_subprocess_exec(
                *place.command(write_end),
                stdin=asyncio.subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(write_end,),
                start_new_session=True,
                cwd=place.working_directory,
                env=environment_for(place.interpreter, os.environ),
            )
        finally:
            os.close(write_end)
            os.close(output)
        sessions.add(process.pid)
        try:
            yield process, results
        finally:
            # The session keeps its number while any of its processes lives.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            sessions.remove(process.pid)
            if process.stdin is not None:
                process.stdin.close()
    finally:
        transport.close()


def _unexplained(status: int, output: Path) -> str:
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with exit status {status}"
    try:
        tail = output.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError:
        tail = ""
    return f"The program {how} while its main ran." + (
        f" The end of what it printed:\n{tail}" if tail else ""
    )
