"""BlockingPartition: results of blocking edges, spooled to the worker's disk and served when the producer has finished.

Owner: a producer's task thread writes its own files; one thread of the worker reads all files. Frames have
the wire format, each with a checksum. A corrupt frame fails the consumer and names the producer, which runs
again. Results stay until the worker ends or their producer starts anew.
"""

from __future__ import annotations

import contextlib
import os
import queue
import struct
import threading
import zlib
from collections.abc import Callable
from typing import BinaryIO, NamedTuple, Protocol

from yarrow.container.network.element_codec import Buffer, ElementCodec, encode_control
from yarrow.container.network.frames import (
    HEADER,
    FrameHeader,
    FrameType,
    WireProtocolError,
    decode_header,
    encode_header,
)
from yarrow.container.network.input_channel import InputChannel
from yarrow.container.network.output_channel import BatchTooLargeError, EncodedBatch, OutputChannel
from yarrow.runtime.common import fault_points
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.data.elements import Batch, ControlElement

_CHECKSUM = struct.Struct("<I")
_BATCHES = (FrameType.ROWS, FrameType.ARROW)
#: Bytes of a file that are buffered before they are written.
_WRITE_BUFFER = 256 * 1024


class SpoolError(YarrowError):
    """A result cannot be written: the disk or the budget is full; the producing task fails."""


class ResultKey(NamedTuple):
    """Names a result: one producer's rows for one consumer subtask over one edge."""

    attempt: ExecutionAttemptID
    edge: int
    consumer: int

    @property
    def file_name(self) -> str:
        """Name of its file in the spool's folder."""
        return f"{self.attempt}-{self.edge}-{self.consumer}.spool"


class FrameOutput(Protocol):
    """The receiver of a result: a channel to its consumer, in this worker or another."""

    @property
    def failure(self) -> str | None:
        """Why the consumer takes no data any more; None while it does."""
        ...

    @property
    def has_credit(self) -> bool:
        """Whether a batch may be sent."""
        ...

    def send_frame(self, header: FrameHeader, payload: Buffer) -> None: ...

    def close(self, reason: str) -> None:
        """Closes the channel; the consumer hears the reason."""
        ...


class ResultSpool:
    """All spooled results of one worker."""

    def __init__(self, folder: str, budget: int, max_payload: int) -> None:
        """`budget`: most bytes of all results together. The first result makes the folder."""
        self._folder = folder
        self._budget = budget
        self.max_payload = max_payload
        self._lock = threading.Lock()
        self._used = 0
        self._sizes: dict[ResultKey, int] = {}
        self._complete: set[ResultKey] = set()
        self._discarded: set[ResultKey] = set()
        #: Waiting consumers in the producer's own region, which may come before it has finished.
        self._waiting: dict[ResultKey, list[_Reader]] = {}
        #: Readers that may have data to send; None = the worker ends.
        self._readers: queue.SimpleQueue[_Reader | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def path(self, key: ResultKey) -> str:
        """The file of a result."""
        return os.path.join(self._folder, key.file_name)

    # ------------------------------------------------------------------ producers

    def begin(self, key: ResultKey) -> BinaryIO:
        """Opens the file of a result; removes results of former attempts of the same subtask."""
        subtask = key.attempt.rpartition("_")[0]
        with self._lock:
            former = [
                other
                for other in self._sizes
                if other.attempt != key.attempt and other.attempt.rpartition("_")[0] == subtask
            ]
        for other in former:
            self.discard(other)
        try:
            os.makedirs(self._folder, mode=0o700, exist_ok=True)
            file = open(self.path(key), "wb", buffering=_WRITE_BUFFER)  # noqa: SIM115 (closed by its channel)
        except OSError as error:
            raise self._failed(error) from error
        with self._lock:
            self._sizes[key] = 0
        return file

    def wrote(self, key: ResultKey, size: int) -> None:
        """Counts bytes that are about to be written. Raises SpoolError beyond the budget."""
        with self._lock:
            if self._used + size > self._budget:
                raise SpoolError(
                    f"results of blocking edges take more than {self._budget} bytes in one worker "
                    "(taskmanager.network.blocking-spool.max-size): raise the limit, use more slots, or set "
                    "execution.exchange-mode to pipelined"
                )
            self._used += size
            self._sizes[key] += size

    def _failed(self, error: OSError) -> SpoolError:
        return SpoolError(
            f"a result of a blocking edge cannot be written to {self._folder}: {error.strerror or error}; free the "
            "disk, or name another folder (taskmanager.tmp.dirs)"
        )

    def write(self, key: ResultKey, file: BinaryIO, header: bytes, parts: list[Buffer]) -> None:
        """Appends a frame. Raises SpoolError when the budget or the disk is exhausted."""
        size = len(header) + _CHECKSUM.size + sum(map(len, parts))
        self.wrote(key, size)
        checksum = zlib.crc32(header)
        for part in parts:
            checksum = zlib.crc32(part, checksum)
        fault_points.reach("spool.write")
        try:
            file.write(header)
            file.write(_CHECKSUM.pack(checksum))
            for part in parts:
                file.write(part)
        except OSError as error:
            raise self._failed(error) from error

    def complete(self, key: ResultKey, file: BinaryIO) -> None:
        """Marks a result as complete: consumers may read it."""
        try:
            file.close()
        except OSError as error:
            raise self._failed(error) from error
        with self._lock:
            self._complete.add(key)
            waiting = self._waiting.pop(key, [])
        for reader in waiting:
            reader.is_complete = True
            self._readers.put(reader)

    def discard(self, key: ResultKey) -> None:
        """Removes a result that nobody wants or that never was complete."""
        with self._lock:
            self._used -= self._sizes.pop(key, 0)
            self._complete.discard(key)
            self._discarded.add(key)
            waiting = self._waiting.pop(key, [])
        # Files that cannot be removed are removed with the worker's folder.
        with contextlib.suppress(OSError):
            os.unlink(self.path(key))
        for reader in waiting:
            reader.output.close("the producer of the result did not finish")

    # ------------------------------------------------------------------ consumers

    def serve(self, key: ResultKey, output: FrameOutput) -> Callable[[], None]:
        """Sends a result as credit allows; call the returned function when credit has come."""
        reader = _Reader(self.path(key), output, self.max_payload)
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._read, name="yarrow-spool", daemon=True)
                self._thread.start()
            gone = key in self._discarded
            reader.is_complete = key in self._complete
            if not gone and not reader.is_complete:
                self._waiting.setdefault(key, []).append(reader)
        if gone:
            output.close(f"the result {key.file_name} does not exist any more")
        self._readers.put(reader)
        return lambda: self._readers.put(reader)

    def stop(self) -> None:
        """Stops serving. Any thread."""
        self._readers.put(None)

    def _read(self) -> None:
        while (reader := self._readers.get()) is not None:
            reader.pump()


class _Reader:
    """The transfer of one result to one consumer; used by the spool's thread alone."""

    def __init__(self, path: str, output: FrameOutput, max_payload: int) -> None:
        self._path = path
        self.output = output
        #: The producer has finished.
        self.is_complete = False
        self._max_payload = max_payload
        self._file: BinaryIO | None = None
        self._next: tuple[FrameHeader, bytes] | None = None
        self._done = False

    def pump(self) -> None:
        """Sends frames as credit allows; a result that cannot be read closes the channel."""
        if self._done or not self.is_complete:
            return
        try:
            self._send()
        except (OSError, WireProtocolError) as error:
            self._finish()
            self.output.close(f"the spooled result {os.path.basename(self._path)} is corrupt: {error}")

    def _send(self) -> None:
        if self._file is None:
            self._file = open(self._path, "rb", buffering=_WRITE_BUFFER)  # noqa: SIM115 (closed by _finish)
        while self.output.failure is None:
            if self._next is None:
                self._next = self._frame(self._file)
            header, payload = self._next
            if header.type in _BATCHES and not self.output.has_credit:
                return
            self._next = None
            self.output.send_frame(header, payload)
            if header.type is FrameType.END_OF_DATA:
                break
        self._finish()

    def _frame(self, file: BinaryIO) -> tuple[FrameHeader, bytes]:
        head = file.read(HEADER.size + _CHECKSUM.size)
        if len(head) != HEADER.size + _CHECKSUM.size:
            raise WireProtocolError("the file ends before the end of data")
        header = decode_header(head, 0, authenticated=True, max_payload=self._max_payload)
        payload = file.read(header.length)
        if len(payload) != header.length:
            raise WireProtocolError("the file is cut short")
        (expected,) = _CHECKSUM.unpack_from(head, HEADER.size)
        if zlib.crc32(payload, zlib.crc32(head[: HEADER.size])) != expected:
            raise WireProtocolError(f"the checksum of a frame of {header.length} bytes does not agree")
        return header, payload

    def _finish(self) -> None:
        self._done = True
        if self._file is not None:
            self._file.close()


class SpoolChannel(OutputChannel):
    """A producer's end of a blocking channel: accepts everything at once and needs no credit."""

    def __init__(
        self, spool: ResultSpool, key: ResultKey, codec: ElementCodec, wake_producer: Callable[[], None]
    ) -> None:
        super().__init__(wake_producer)
        self._spool = spool
        self._key = key
        self._codec = codec
        self._file = spool.begin(key)
        self._complete = False

    def _has_credit(self) -> bool:
        return True

    def _transmit(self, batch: Batch) -> None:
        encoded = EncodedBatch(self._codec, batch)
        if encoded.size > self._spool.max_payload:
            raise BatchTooLargeError(
                f"a batch of {encoded.rows} rows takes {encoded.size} bytes, allowed are {self._spool.max_payload} "
                "(taskmanager.network.max-frame-size): raise the limit, or make the records smaller"
            )
        header = encode_header(encoded.frame_type, 0, encoded.size, encoded.rows, encoded.flags)
        self._spool.write(self._key, self._file, header, encoded.parts)
        self.sent_batches += 1
        self.sent_bytes += encoded.size

    def _transmit_control(self, element: ControlElement) -> None:
        frame_type, payload = encode_control(element)
        self._spool.write(self._key, self._file, encode_header(frame_type, 0, len(payload)), [payload])
        if frame_type is FrameType.END_OF_DATA:
            self._spool.complete(self._key, self._file)
            self._complete = True

    def close(self, reason: str) -> None:
        if not self._complete:
            # A full disk has failed the task already.
            with contextlib.suppress(OSError):
                self._file.close()
            self._spool.discard(self._key)


class LocalFrames:
    """A FrameOutput to a consumer of the same worker."""

    def __init__(self, target: InputChannel) -> None:
        self._target = target
        self._granted = (0, 0)
        self._sent = (0, 0)
        self.failure: str | None = None
        #: Called to make the spool continue.
        self.wake: Callable[[], None] = lambda: None

    @property
    def has_credit(self) -> bool:
        """Whether a batch may be sent."""
        if self._target.closed:
            self.failure = "the consuming task has ended"
        return self._sent[0] < self._granted[0] and self._sent[1] < self._granted[1]

    def grant(self, batches: int, size: int) -> None:
        """Totals since the channel was opened; the consumer's task thread."""
        self._granted = (batches, size)
        self.wake()

    def send_frame(self, header: FrameHeader, payload: Buffer) -> None:
        """Forwards a frame."""
        if header.type in _BATCHES:
            self._sent = (self._sent[0] + 1, self._sent[1] + header.length)
        self._target.append_frame(header, payload)

    def close(self, reason: str) -> None:
        """Closes the channel."""
        self._target.fail(reason)
