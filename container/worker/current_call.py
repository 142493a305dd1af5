"""CurrentCall: the operator that a worker runs, in a file that outlives a crash of the worker.

Owner: the worker's task thread writes (one store into mapped memory, no system call); the supervisor reads
after the worker has died. A worker that dies by a signal can send no message, so this page tells whose code
it ran.

The file is `current-call` in the worker's folder. Its first 8 bytes are the number of the running entry,
little-endian (0 = none). From byte 4096 on follow the entries as frames of msgpack, in order of their
numbers. Beside it, `chain-lines` has a frame for each generated function. The frame says to which operator
each line belongs, so that the stack of a crash names it.

`last-call` has one frame at most: what the worker's last look or its last word has told, with the record.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path

import msgspec

from yarrow.container.protocol.framing import HEADER
from yarrow.container.protocol.worker_protocol import CurrentUserCall
from yarrow.runtime.common.ids import ExecutionAttemptID, OperatorID

FILE_NAME = "current-call"
CHAINS_FILE_NAME = "chain-lines"
LAST_FILE_NAME = "last-call"
_TABLE_OFFSET = 4096
_DECODER = msgspec.msgpack.Decoder(CurrentUserCall)
_ENCODER = msgspec.msgpack.Encoder()


class ChainLines(msgspec.Struct, frozen=True, kw_only=True):
    """A generated function: its file name in stacks, and (line, index into `operators`) for each operator's lines."""

    attempt_id: ExecutionAttemptID
    file_name: str
    #: (operator id, operator name)
    operators: tuple[tuple[OperatorID, str], ...]
    lines: tuple[tuple[int, int], ...]


_CHAIN_DECODER = msgspec.msgpack.Decoder(ChainLines)


class CurrentCallWriter:
    """The worker's side of the page: `number = define(call)` once for each operator.

    Then `running[0] = number` is set around each of its slices.
    """

    def __init__(self, directory: Path) -> None:
        self._fd = os.open(directory / FILE_NAME, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._fd, _TABLE_OFFSET)
        self._map = mmap.mmap(self._fd, _TABLE_OFFSET)
        #: Index 0 holds the number of the running operator, or 0.
        self.running = memoryview(self._map).cast("Q")
        self._end = _TABLE_OFFSET
        self._defined = 0
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        self._chains_fd = os.open(directory / CHAINS_FILE_NAME, flags, 0o600)
        last = directory / LAST_FILE_NAME
        self._last_fd = os.open(last, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    def define(self, call: CurrentUserCall) -> int:
        """Adds an entry and returns its number."""
        body = _ENCODER.encode(call)
        frame = HEADER.pack(len(body)) + body
        os.pwrite(self._fd, frame, self._end)
        self._end += len(frame)
        self._defined += 1
        return self._defined

    def define_chain(self, chain: ChainLines) -> None:
        """Adds a generated function."""
        body = _ENCODER.encode(chain)
        os.write(self._chains_fd, HEADER.pack(len(body)) + body)

    def note_last(self, call: CurrentUserCall | None) -> None:
        """Replaces what was told last; None = the worker runs no operator. Any thread. Raises OSError."""
        body = b"" if call is None else _ENCODER.encode(call)
        # One call of the system: nobody finds half of it.
        os.pwrite(self._last_fd, HEADER.pack(len(body)) + body, 0)

    def close(self) -> None:
        """Unmaps; the file stays for the supervisor, which removes the folder."""
        self.running.release()
        self._map.close()
        os.close(self._fd)
        os.close(self._chains_fd)
        os.close(self._last_fd)


def read_current_call(directory: Path) -> CurrentUserCall | None:
    """The call that the worker of that folder was running last; None if it ran no operator."""
    try:
        data = (directory / FILE_NAME).read_bytes()
    except FileNotFoundError:
        return None
    number = int.from_bytes(data[:8], "little")
    position = _TABLE_OFFSET
    while number > 0 and position + HEADER.size <= len(data):
        (length,) = HEADER.unpack_from(data, position)
        position += HEADER.size
        number -= 1
        if number == 0:
            try:
                return _DECODER.decode(data[position : position + length])
            except msgspec.MsgspecError:
                return None
        position += length
    return None


def read_last_call(directory: Path) -> CurrentUserCall | None:
    """What the worker of that folder has told last; None if it ran no operator then."""
    try:
        data = (directory / LAST_FILE_NAME).read_bytes()
        (length,) = HEADER.unpack_from(data)
        return _DECODER.decode(data[HEADER.size : HEADER.size + length]) if length else None
    except (FileNotFoundError, struct.error, msgspec.MsgspecError):
        return None


def read_chain_call(directory: Path, file_name: str, line: int) -> CurrentUserCall | None:
    """The operator of a line in a worker's generated function; None if the worker defined none."""
    try:
        data = (directory / CHAINS_FILE_NAME).read_bytes()
    except FileNotFoundError:
        return None
    position = 0
    while position + HEADER.size <= len(data):
        (length,) = HEADER.unpack_from(data, position)
        position += HEADER.size
        try:
            chain = _CHAIN_DECODER.decode(data[position : position + length])
        except msgspec.MsgspecError:  # the worker died during the write
            return None
        position += length
        if chain.file_name == file_name:
            owner = dict(chain.lines).get(line)
            if owner is None:
                return None
            operator_id, name = chain.operators[owner]
            return CurrentUserCall(attempt_id=chain.attempt_id, operator_id=operator_id, operator_name=name)
    return None
