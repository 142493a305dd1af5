"""TaskReports: a task's connection to its driver, by which the task tells what becomes of it.

Owner: the thread of the task; a thread that looks at the task sends too. Must not know stages or rows.
"""

from __future__ import annotations

import socket
import threading
from typing import Final

import msgspec

from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.batch.driver.task_messages import (
    AttemptAt,
    AttemptEnded,
    AttemptKeyGroups,
    AttemptProgress,
    FromTask,
    SharesWanted,
    TaskShares,
    ToTaskMessage,
)
from yarrow.container.batch.largest_key_group import LargestKeyGroup
from yarrow.container.batch.spark.tasks.driver_address import DriverAddress
from yarrow.container.protocol.framing import FramedSocket, encode_frame
from yarrow.container.worker.present_call import PresentCall
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import OperatorID

#: Seconds between two reports of progress.
_REPORT_SECONDS: Final = 1.0
_ANSWERS: Final[msgspec.msgpack.Decoder[ToTaskMessage]] = msgspec.msgpack.Decoder(ToTaskMessage)


class TaskReports:
    """The connection of one task."""

    def __init__(self, driver: DriverAddress) -> None:
        self._socket: socket.socket = driver.connect()
        self._answers: FramedSocket[ToTaskMessage] = FramedSocket(self._socket, _ANSWERS)
        #: The task's thread and the one that looks at it send. TLS lets one thread at a time use a connection, so
        #: whoever sends, reads an answer or closes holds it.
        self._lock = threading.Lock()
        self._clock = SystemClock()
        self._due = self._clock.monotonic() + _REPORT_SECONDS
        self.records_in = 0
        self.records_out = 0

    def send(self, message: FromTask) -> None:
        """Sends a message. Raises OSError."""
        frame = encode_frame(message)
        with self._lock:
            self._socket.sendall(frame)

    def at(self, call: PresentCall, end: str) -> None:
        """Tells what the task does, and how its process ends; "" = it goes on."""
        self.send(AttemptAt(operator_name=call.operator_name, record=call.record, stack=call.stack, end=end))

    def progress(self) -> None:
        """Reports the counts if the last report is old."""
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + _REPORT_SECONDS
            self.send(AttemptProgress(records_in=self.records_in, records_out=self.records_out))

    def ended(self) -> None:
        """Tells that the task has put out everything."""
        self.send(AttemptEnded(records_in=self.records_in, records_out=self.records_out))

    def key_groups(self, largest: LargestKeyGroup) -> None:
        """Tells of the largest key group."""
        self.send(AttemptKeyGroups(largest=largest))

    def shares(self) -> dict[OperatorID, RateLimit]:
        """The attempt's present shares of rate limits, as the driver tells them. Raises OSError and FrameError."""
        frame = encode_frame(SharesWanted())
        with self._lock:
            self._socket.sendall(frame)
            answer = self._answers.receive()
        if not isinstance(answer, TaskShares):
            raise ConnectionError("the driver has ended the connection of a task")
        return answer.shares

    def close(self) -> None:
        """Ends the connection: what the task has not told by then is lost."""
        with self._lock:
            self._socket.close()
