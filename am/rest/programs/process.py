"""Runs a program's main in its own child process, and takes the JobGraphs that it returns.

Owner: the event loop of the REST server. User code never runs in the control plane. The child leads a session
of its own; after the run, nothing of that session is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

import yarrow
from yarrow.am.rest.errors import UploadedProgramFailedError
from yarrow.am.rest.programs.messages import (
    MAX_FRAME_BYTES,
    JobHandedOver,
    ProgramEnded,
    ProgramRequest,
    decode_message,
    encode_frame,
)
from yarrow.am.rest.programs.program_child import how_it_ended, kill_session, program_child

#: Bytes at the end of the output that are kept for a program that fails.
_TAIL_BYTES = 16 * 1024
#: Seconds to wait for output after the process has ended: a grandchild may hold the pipe.
_OUTPUT_GRACE = 1.0

#: Takes a job while its files exist.
TakeJob = Callable[[JobHandedOver], Awaitable[None]]


async def run_program(
    request: ProgramRequest, take: TakeJob, timeout_seconds: float, temporary_directory: Path
) -> None:
    """Runs main, and calls `take` for each job after main has returned.

    Raises UploadedProgramFailedError with the program's own trace and the end of its output. The program
    failed, was ended by a signal, took longer than the timeout, or executed nothing.
    """
    working = Path(tempfile.mkdtemp(prefix="yarrow-program-", dir=temporary_directory))
    try:
        for job in await _jobs_of(request, timeout_seconds, working):
            await take(job)
    finally:
        await asyncio.to_thread(shutil.rmtree, working, ignore_errors=True)


async def _jobs_of(request: ProgramRequest, timeout_seconds: float, working: Path) -> list[JobHandedOver]:
    async with program_child(_command, asyncio.subprocess.PIPE, working, _environment()) as (
        process,
        results,
    ):
        output = _Tail()
        reading = asyncio.create_task(output.read(process))
        try:
            async with asyncio.timeout(timeout_seconds):
                assert process.stdin is not None
                process.stdin.write(encode_frame(request))
                jobs, end = await _read_results(results)
                if end is None:
                    await process.wait()
        except (TimeoutError, ConnectionError):
            raise UploadedProgramFailedError(
                f"{request.name} did not end within {timeout_seconds:g} s and was killed: main has to "
                f"build the job and call execute.{output.text()}"
            ) from None
        finally:
            kill_session(process)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reading, _OUTPUT_GRACE)
    if end is None:
        how = how_it_ended(process.returncode or 0)
        raise UploadedProgramFailedError(f"{request.name} {how} while its main ran.{output.text()}")
    if end.error:
        raise UploadedProgramFailedError(f"{request.name} failed:\n{end.error}{output.text()}")
    if not jobs:
        raise UploadedProgramFailedError(
            f"{request.name} ended without a job: its main has to call execute.{output.text()}"
        )
    return jobs


def _command(results: int) -> tuple[str, ...]:
    return (sys.executable, "-P", "-u", "-m", "yarrow.am.rest.programs.runner", str(results))


def _environment() -> dict[str, str]:
    """This process's environment, in which the child finds this package."""
    root = str(Path(yarrow.__file__).parent.parent)
    others = os.environ.get("PYTHONPATH", "")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{others}" if others else root}


async def _read_results(results: asyncio.StreamReader) -> tuple[list[JobHandedOver], ProgramEnded | None]:
    """Reads every frame up to the last; None if the pipe closed before the last."""
    jobs: list[JobHandedOver] = []
    while True:
        try:
            length = int.from_bytes(await results.readexactly(4), "big")
            if length > MAX_FRAME_BYTES:
                return jobs, ProgramEnded(error=f"a job of {length} bytes is over {MAX_FRAME_BYTES} bytes")
            message = decode_message(await results.readexactly(length))
        except asyncio.IncompleteReadError:
            return jobs, None
        except msgspec.DecodeError as error:
            return jobs, ProgramEnded(error=f"the output of the program's process cannot be read: {error}")
        if isinstance(message, ProgramEnded):
            return jobs, message
        jobs.append(message)


class _Tail:
    """The end of a process's output."""

    def __init__(self) -> None:
        self._bytes = b""

    async def read(self, process: asyncio.subprocess.Process) -> None:
        """Reads up to the end of the output, so that the process never blocks on its output."""
        assert process.stdout is not None
        while part := await process.stdout.read(_TAIL_BYTES):
            self._bytes = (self._bytes + part)[-_TAIL_BYTES:]

    def text(self) -> str:
        """The output with a heading, empty without any."""
        written = self._bytes.decode(errors="replace").strip()
        return f"\nIt wrote:\n{written}" if written else ""
