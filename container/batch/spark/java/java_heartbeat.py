"""JavaHeartbeat: notices that Java stands still: it runs, but answers nothing.

Owner: two threads of its own: one asks Java, again and again, and the other one counts the rounds without an answer.
It counts its own rounds and not the clock's seconds: so a driver that itself stood still gives Java time to answer.
Must not decide what a silent Java costs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from yarrow.runtime.rpc.heartbeat import HeartbeatSettings

_log = logging.getLogger(__name__)


class JavaHeartbeat:
    """Asks Java for a sign of life until `stop`."""

    def __init__(
        self, ask: Callable[[], object], on_silent: Callable[[float], None], settings: HeartbeatSettings
    ) -> None:
        """`ask` returns when Java has answered. `on_silent` gets the timeout in seconds, once."""
        self._ask = ask
        self._on_silent = on_silent
        self._settings = settings
        self._over = threading.Event()
        self._answers = 0

    def start(self) -> None:
        """Begins to ask."""
        for work, name in ((self._ask_on, "java heartbeat"), (self._watch, "java silence")):
            threading.Thread(target=work, name=name, daemon=True).start()

    def stop(self) -> None:
        """Ends the questions; Java may be ended from now on."""
        self._over.set()

    def _ask_on(self) -> None:
        while not self._over.is_set():
            try:
                self._ask()
            except Exception as error:  # the end of Java is told elsewhere
                _log.debug("Java did not answer: %r", error)
            else:
                self._answers += 1
            self._over.wait(self._settings.interval)

    def _watch(self) -> None:
        answers, silent = 0, 0.0
        while not self._over.wait(self._settings.interval):
            silent = 0.0 if self._answers != answers else silent + self._settings.interval
            answers = self._answers
            if silent >= self._settings.timeout:
                self._on_silent(self._settings.timeout)
                return
