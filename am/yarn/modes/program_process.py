"""The child process of an application's main(), seen from the master.

Owner: the master's loop. The child leads a session of its own; after its end, nothing of that session is
left. The program's output goes to a file beside the master's log.
"""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from yarrow.am.rest.programs.program_child import how_it_ended, program_child
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
    environment = environment_for(place.interpreter, os.environ)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
    session: int | None = None
    output = os.open(place.output, flags, 0o640)
    try:
        async with program_child(place.command, output, place.working_directory, environment) as (
            process,
            results,
        ):
            session = process.pid
            sessions.add(session)
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
    finally:
        os.close(output)
        if session is not None:
            sessions.remove(session)
    try:
        return decode_end(said)
    except msgspec.DecodeError as error:
        return ProgramEnd(
            outcome=ProgramOutcome.FAILED, text=f"what the program's process said cannot be read: {error}"
        )


def _unexplained(status: int, output: Path) -> str:
    try:
        tail = output.read_bytes()[-_TAIL_BYTES:].decode(errors="replace").strip()
    except OSError:
        tail = ""
    return f"The program {how_it_ended(status)} while its main ran." + (
        f" The end of what it printed:\n{tail}" if tail else ""
    )
