"""Log records of user functions: sent by a worker to its supervisor as lines of .log, and as records for a client.

Owner: any logging thread of the worker; `logging` admits one to a handler at a time. Records become text
here: no user object leaves the worker. Yarrow's own loggers write to .log alone.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping

from yarrow.container.protocol.worker_protocol import FromWorker, LogLines, UserLogRecord
from yarrow.container.worker.log_origin import origin_of
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.short_text import cut_in_the_middle
from yarrow.runtime.rpc.output_stream import LoggedRecord

#: Most records a second, the rest is dropped: the client is a terminal, or a file.
RECORDS_A_SECOND = 1000
#: Most characters of a message or a traceback.
_LONGEST = 1 << 20
_OWN = "yarrow"
_LINE = logging.Formatter("%(asctime)s %(levelname)s %(name)s - %(message)s")


def is_own_logger(name: str) -> bool:
    """True for loggers of the engine."""
    return name == _OWN or name.startswith(f"{_OWN}.")


def use_client_levels(levels: Mapping[str, int]) -> None:
    """Sets the loggers of this process to the client's levels; the engine's loggers keep theirs."""
    logging.getLogger(_OWN).setLevel(logging.WARNING)
    for name, level in levels.items():
        if not is_own_logger(name):
            logging.getLogger(name or None).setLevel(level)


class LogLinesHandler(logging.Handler):
    """Sends log lines to the supervisor, which appends them to .log."""

    def __init__(self, send: Callable[[FromWorker], None]) -> None:
        super().__init__(logging.INFO)
        self._send = send
        self.setFormatter(_LINE)

    def emit(self, record: logging.LogRecord) -> None:
        """Sends a line, followed by its traceback if it has one."""
        try:
            self._send(LogLines(text=self.format(record) + "\n"))
        except Exception:
            self.handleError(record)


class ClientLogHandler(logging.Handler):
    """Sends user code's records to the client, at most RECORDS_A_SECOND; the engine's become lines of .log."""

    def __init__(self, send: Callable[[FromWorker], None], clock: Clock) -> None:
        super().__init__()
        self._send = send
        self._clock = clock
        self._own = LogLinesHandler(send)
        self._second = clock.monotonic()
        self._sent = 0
        self._dropped = 0

    def emit(self, record: logging.LogRecord) -> None:
        """Sends one record; no effect after the limit of this second."""
        if is_own_logger(record.name):
            if record.levelno >= self._own.level:
                self._own.handle(record)
            return
        now = self._clock.monotonic()
        if now - self._second >= 1.0:
            self._tell_dropped()
            self._second, self._sent = now, 0
        if self._sent >= RECORDS_A_SECOND:
            self._dropped += 1
            return
        self._sent += 1
        try:
            self._send_record(record)
        except Exception:
            self.handleError(record)

    def flush(self) -> None:
        """Reports how many records were dropped since the last report, if any."""
        self.acquire()
        try:
            self._tell_dropped()
        finally:
            self.release()

    def _send_record(self, record: logging.LogRecord) -> None:
        operator, subtask = origin_of(sys._getframe())
        text = _LINE.format(record)
        logged = LoggedRecord(
            name=record.name,
            level=record.levelno,
            created=record.created,
            message=cut_in_the_middle(record.getMessage(), _LONGEST),
            traceback=cut_in_the_middle(_traceback(record), _LONGEST),
            operator=operator,
            subtask=subtask,
            thread=record.threadName or "",
            path=record.pathname,
            line=record.lineno,
            function=record.funcName or "",
        )
        self._send(UserLogRecord(record=logged, text=cut_in_the_middle(text, 2 * _LONGEST) + "\n"))

    def _tell_dropped(self) -> None:
        count, self._dropped = self._dropped, 0
        if not count:
            return
        text = (
            f"{count} log records of a worker were dropped: at most {RECORDS_A_SECOND} a second travel to the"
            " client. Raise the level of the logger, or log less"
        )
        created = self._clock.epoch_ms() / 1000
        told = LoggedRecord(name="yarrow.worker", level=logging.WARNING, created=created, message=text)
        self._send(UserLogRecord(record=told, text=text + "\n"))


def _traceback(record: logging.LogRecord) -> str:
    """The traceback, followed by the requested stack (`stack_info`)."""
    # Formatting has stored the traceback there.
    parts = (record.exc_text, record.stack_info)
    return "\n".join(part for part in parts if part)
