"""Captures the printed output of user code: whole lines of sys.stdout and sys.stderr, in order per thread.

Owner: installed once in a worker process; each thread has its own unfinished line. The C level streams stay:
they lead to the raw output file. In the one-process mode nothing is replaced.
"""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable

#: (stream name, whole lines)
SendLines = Callable[[str, str], None]


class LineCapture(io.TextIOBase):
    """A text stream that forwards whole lines."""

    def __init__(self, stream: str, send: SendLines) -> None:
        self._stream = stream
        self._send = send
        self._local = threading.local()

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """Always UTF-8."""
        return "utf-8"

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        pending = getattr(self._local, "line", "") + text
        end = pending.rfind("\n") + 1
        self._local.line = pending[end:]
        if end:
            self._send(self._stream, pending[:end])
        return len(text)

    def flush(self) -> None:
        """Does nothing: a line is forwarded when it is whole. `end_line` completes an unfinished one."""

    def end_line(self) -> None:
        """Forwards this thread's unfinished line with a line end, at the end of a task."""
        pending = getattr(self._local, "line", "")
        if pending:
            self._local.line = ""
            self._send(self._stream, pending + "\n")


class CapturedOutput:
    """The captured sys.stdout and sys.stderr of a worker process."""

    def __init__(self, send: SendLines, on_end: Callable[[], None]) -> None:
        """`on_end` is called at the end of a task, after its last line."""
        self._streams = (LineCapture("stdout", send), LineCapture("stderr", send))
        self._on_end = on_end

    def install(self) -> None:
        """Replaces the two streams of this process."""
        sys.stdout, sys.stderr = self._streams

    def end_lines(self) -> None:
        """Completes unfinished lines of this thread."""
        for stream in self._streams:
            stream.end_line()
        self._on_end()
