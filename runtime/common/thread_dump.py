"""Stacks of the threads of this process, as its REST paths show them.

Owner: any thread; it looks at the others, and waits for none.
"""

from __future__ import annotations

import sys
import threading
import traceback


def thread_stacks() -> tuple[tuple[str, str], ...]:
    """(name, stack) of each thread that runs Python; a thread that C code has begun has its number for a name."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return tuple(
        (names.get(ident, f"thread {ident}"), "".join(traceback.format_stack(frame)))
        for ident, frame in sys._current_frames().items()
    )


def thread_text(name: str, stack: str) -> str:
    """A thread as a page shows it, where texts of all threads follow each other: its name stands before its stack."""
    return f'"{name}"\n{stack}\n'
