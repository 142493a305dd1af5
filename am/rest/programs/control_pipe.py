"""The standard input of a process with a user's program: first the request, then an open pipe while it may live.

Owner: the main thread of such a process, once, before the program begins; then a daemon thread. The thread
waits for the end of the pipe, and then ends the process at once.
"""

from __future__ import annotations

import os
import threading

#: Exit status of a process whose pipe was closed.
_EXIT_ORPHANED = 70


def take_request(largest: int | None = None) -> bytes:
    """Reads the request and hides its pipe from the program, which gets an empty standard input.

    Its length comes in 4 bytes (big-endian) before it. Raises EOFError if the pipe ends early, or the request
    has more than `largest` bytes.
    """
    control = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    length = int.from_bytes(_read(control, 4), "big")
    if largest is not None and length > largest:
        raise EOFError(f"a request of {length} bytes is over {largest} bytes")
    request = _read(control, length)
    threading.Thread(target=_end_with, args=(control,), name="control", daemon=True).start()
    return request


def _read(descriptor: int, length: int) -> bytes:
    parts = b""
    while len(parts) < length:
        part = os.read(descriptor, length - len(parts))
        if not part:
            raise EOFError("the control plane closed the pipe before the control plane sent a request")
        parts += part
    return parts


def _end_with(control: int) -> None:
    os.read(control, 1)
    os._exit(_EXIT_ORPHANED)
