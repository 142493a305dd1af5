"""Signals that end a program: after Ctrl-C one line tells the outcome, and SIGTERM ends in order what it must.

Owner: the main thread. Only the interpreter's own hook and the system's own handlers are replaced: notebooks,
debuggers and programs have theirs.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType, TracebackType

from yarrow.datastream.program import job_waiting


def show_no_trace_of_ctrl_c() -> None:
    """From now on, a KeyboardInterrupt of a cancelled job ends the program without a trace."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show


def end_in_order_by_signals() -> None:
    """From now on, SIGTERM and SIGHUP end the program as sys.exit does, so that its jobs and their files go with it.

    The second signal ends the program at once. Off the main thread, and where the program has a handler, this has
    no effect.
    """
    if threading.current_thread() is not threading.main_thread():
        return
    for number in (signal.SIGTERM, signal.SIGHUP):
        # A program under nohup ignores SIGHUP.
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _exit)


def _exit(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    # The exit status that shells tell for a program that a signal has ended.
    raise SystemExit(128 + number)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if not (issubclass(kind, KeyboardInterrupt) and _passed_the_wait(trace)):
        sys.__excepthook__(kind, error, trace)


def _passed_the_wait(trace: TracebackType | None) -> bool:
    while trace is not None:
        if trace.tb_frame.f_globals.get("__name__") == job_waiting.__name__:
            return True
        trace = trace.tb_next
    return False
