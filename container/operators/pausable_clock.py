"""PausableClock: processing time for the idleness of one stream, which stands while the stream cannot be read.

Owner: the task thread. A stream is not idle because nobody reads it (FLIP-471). So its time to idleness stands while
outputs lack credit, rows wait for the chain, or the alignment of watermarks pauses a split. Must not know which.
"""

from __future__ import annotations

from collections.abc import Callable


class PausableClock:
    """A clock in milliseconds that runs while it is not paused."""

    def __init__(self, epoch_ms: Callable[[], int]) -> None:
        """`epoch_ms` is the clock that runs on, which may be a PausableClock too."""
        self._epoch_ms = epoch_ms
        #: Milliseconds of all ended pauses.
        self._stood_ms = 0
        #: The time of `_epoch_ms` at which the present pause began; None = there is none.
        self._since: int | None = None

    def __call__(self) -> int:
        """The time in milliseconds, less all pauses."""
        return (self._epoch_ms() if self._since is None else self._since) - self._stood_ms

    @property
    def paused(self) -> bool:
        """True while the clock stands."""
        return self._since is not None

    def pause(self, paused: bool) -> None:
        """Stops the clock, or lets it run on; no effect if it is so already."""
        if paused is self.paused:
            return
        now = self._epoch_ms()
        if self._since is None:
            self._since = now
        else:
            self._stood_ms += now - self._since
            self._since = None

    def leave_out(self, milliseconds: int) -> None:
        """Takes the last milliseconds back, in which the stream was not read; no effect during a pause."""
        if self._since is None:
            self._stood_ms += milliseconds
