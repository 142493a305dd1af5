"""The output of a failed command.

Owner: the main thread. A user's mistake is one sentence without a trace; an exception of a program is shown
with the program's own frames first.
"""

from __future__ import annotations

import sys
import traceback
from types import TracebackType

from yarrow.client.errors import CommandError
from yarrow.runtime.common.errors import JobExecutionError, YarrowError
from yarrow.runtime.yarn.gateways import YarnError

#: Scripts look for these lines.
DASHES = "-" * 60
HEADLINE = " The program finished with the following exception:"


class ProgramFailedError(Exception):
    """The user's program raised an exception, which is the `__cause__`."""


def report_failure(error: BaseException) -> None:
    """Writes the lines that scripts and people look for to standard error."""
    text = failure_text(error)
    print(f"\n{DASHES}\n{HEADLINE}\n\n{text}", file=sys.stderr, flush=True)


def failure_text(error: BaseException) -> str:
    """The job's failure from the worker, a program's own trace, or one sentence."""
    if isinstance(error, ProgramFailedError) and error.__cause__ is not None:
        cause = error.__cause__
        if isinstance(cause, JobExecutionError):
            return str(cause)
        if isinstance(cause, CommandError | YarnError):
            # A resource that the command names is missing: the program's frames say nothing about that.
            return f"{type(cause).__name__}: {cause}"
        return "".join(
            traceback.format_exception(type(cause), cause, users_frames(cause.__traceback__))
        ).rstrip()
    if isinstance(error, YarrowError):
        return f"{type(error).__name__}: {error}"
    return "".join(traceback.format_exception(error)).rstrip()


def users_frames(trace: TracebackType | None) -> TracebackType | None:
    """The trace from the program's first frame on, without our own before it."""
    first = trace
    while first is not None and _is_ours(first):
        first = first.tb_next
    return first or trace


def _is_ours(trace: TracebackType) -> bool:
    module = trace.tb_frame.f_globals.get("__name__", "")
    return module.startswith("yarrow.cli") or trace.tb_frame.f_code.co_filename.startswith("<frozen")


def exit_status(end: SystemExit) -> int:
    """The exit status that the interpreter would use, with its message on standard error."""
    if end.code is None:
        return 0
    if isinstance(end.code, int):
        return end.code
    print(end.code, file=sys.stderr)
    return 1
