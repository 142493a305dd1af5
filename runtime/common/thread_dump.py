"""The stacks of this process's threads, in the form of REST.

Owner: any thread; it inspects the others, and waits for none.
"""

from __future__ import annotations

import sys
import threading
import traceback


def thread_stacks() -> tuple[tuple[str, str], ...]:
    """(name, stack) of each thread that runs Python; a thread that C code started is named by its number."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return tuple(
        (names.get(ident, f"thread {ident}"), "".join(traceback.format_stack(frame)))
        for ident, frame in sys._current_frames().items()
    )


def thread_text(name: str, stack: str) -> str:
    """A thread's text on a page with all threads: its name stands before its stack."""
    return f'"{name}"\n{stack}\n'
