"""Ctrl-C while a program waits for its job: one line tells the outcome, and no trace follows.

Owner: the main thread. Only the interpreter's own hook is replaced: notebooks and debuggers have theirs.
"""

from __future__ import annotations

import sys
from types import TracebackType

from yarrow.datastream.program import job_waiting


def show_no_trace_of_ctrl_c() -> None:
    """From now on, a KeyboardInterrupt of a cancelled job ends the program without a trace."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not (issubclass(kind, KeyboardInterrupt) and _passed_the_wait(trace)):
        sys.__excepthook__(kind, error, trace)


def _passed_the_wait(trace: TracebackType | None) -> bool:
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == job_waiting.__name__:
            return True
        trace = trace.tb_next
    return False
