"""Hadoop's token file of a container, as far as it says when the application can no longer work.

Owner: any thread at the start of a process; blocking read. Passwords and identifiers of tokens are skipped: nothing of
them is kept, returned or logged. The form is that of Hadoop's Credentials, version 0 (Writable).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from yarrow.runtime.common.errors import YarrowError

#: Where YARN tells a container's processes that the file is.
TOKEN_FILE: Final = "HADOOP_TOKEN_FILE_LOCATION"
_MAGIC: Final = b"HDTS"
_WRITABLE: Final = 0
_MAX_BYTES: Final = 16 << 20
#: Tokens whose identifier has Hadoop's common form, with the time after which nobody renews them.
_COMMON_FORM: Final = frozenset({"HDFS_DELEGATION_TOKEN", "RM_DELEGATION_TOKEN", "WEBHDFS delegation"})


class TokenFileError(YarrowError):
    """The file is not of the form that is read here."""


@dataclass(frozen=True, slots=True)
class TokenLife:
    """One delegation token."""

    kind: str
    service: str
    #: Epoch milliseconds after which it is not renewed.
    ends_ms: int


def token_lives(path: Path) -> Sequence[TokenLife]:
    """The delegation tokens of a file; others (of YARN's own protocols) have no end. OSError, TokenFileError."""
    with path.open("rb") as file:
        data = _Reader(file.read(_MAX_BYTES))
    if data.take(len(_MAGIC)) != _MAGIC or data.take(1)[0] != _WRITABLE:
        raise TokenFileError(f"{path} is no token file of Hadoop in the form of version {_WRITABLE}")
    found = []
    for _ in range(data.number()):
        data.text()  # an alias
        identifier = data.take(data.number())
        data.take(data.number())  # the password
        kind, service = data.text(), data.text()
        if kind in _COMMON_FORM:
            found.append(TokenLife(kind, service, _end(_Reader(identifier))))
    return found


def sentence(lives: Sequence[TokenLife], now_ms: int) -> str:
    """How long the tokens last; empty when there is none that ends."""
    if not lives:
        return ""
    first = min(lives, key=lambda life: life.ends_ms)
    return f"the {first.kind} for {first.service} {time_left(first.ends_ms, now_ms)}"


def time_left(ends_ms: int, now_ms: int) -> str:
    """The rest of a sentence about a token that ends then: how long that is, and what to do before."""
    seconds = (ends_ms - now_ms) / 1000
    if seconds <= 0:
        return "has ended: containers that start from now on cannot read HDFS. Start the application anew"
    when = f"{seconds / 86_400:.1f} days" if seconds >= 86_400 else f"{seconds / 3600:.1f} hours"
    return f"ends in {when}, and nothing renews it beyond that: stop this application with a savepoint before"


def tokens_end(environment: Mapping[str, str]) -> int:
    """When the first token of this container ends, in epoch milliseconds; 0 = none ends, or that cannot be read."""
    path = environment.get(TOKEN_FILE)
    if not path:
        return 0
    try:
        return min((life.ends_ms for life in token_lives(Path(path))), default=0)
    except (OSError, TokenFileError):
        return 0


def _end(identifier: _Reader) -> int:
    identifier.take(1)  # version of the identifier
    for _ in range(3):
        identifier.text()  # owner, renewer, real user
    identifier.number()  # issued
    return identifier.number()


class _Reader:
    """Numbers and texts as Hadoop's WritableUtils writes them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, count: int) -> bytes:
        end = self._position + count
        if count < 0 or end > len(self._data):
            raise TokenFileError("a token file of Hadoop ends in the middle of a token")
        part, self._position = self._data[self._position : end], end
        return part

    def number(self) -> int:
        (first,) = self.take(1)
        if first < 128:
            return first
        signed = first - 256
        if signed >= -112:
            return signed
        size = -(signed + 112) if signed >= -120 else -(signed + 120)
        value = int.from_bytes(self.take(size), "big")
        return value if signed >= -120 else ~value

    def text(self) -> str:
        return self.take(self.number()).decode("utf-8", "replace")
