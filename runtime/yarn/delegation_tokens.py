"""Hadoop's token file of a container: the time at which the application can no longer work.

Owner: any thread at the start of a process; blocking read. Nothing of passwords and identifiers is kept, returned or
logged. What is in the file is known to `runtime.fs.hadoop_tokens`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from yarrow.runtime.fs.hadoop_tokens import TOKEN_FILE_VARIABLE as TOKEN_FILE
from yarrow.runtime.fs.hadoop_tokens import TokenFileError, read_tokens

__all__ = [
    "TOKEN_FILE",
    "TokenFileError",
    "TokenLife",
    "log_token_life",
    "sentence",
    "time_left",
    "token_lives",
    "tokens_end",
]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TokenLife:
    """The life time of one delegation token."""

    kind: str
    service: str
    #: Epoch milliseconds after which it is not renewed.
    ends_ms: int


def token_lives(path: Path) -> Sequence[TokenLife]:
    """The delegation tokens of a file; others (of YARN's own protocols) have no end. OSError, TokenFileError."""
    ends = [(token, token.end_ms()) for token in read_tokens(path)]
    return [TokenLife(token.kind, token.service, end) for token, end in ends if end is not None]


def sentence(lives: Sequence[TokenLife], now_ms: int) -> str:
    """The life time of the tokens in words; empty if no token ends."""
    if not lives:
        return ""
    first = min(lives, key=lambda life: life.ends_ms)
    return f"the {first.kind} for {first.service} {time_left(first.ends_ms, now_ms)}"


def time_left(ends_ms: int, now_ms: int) -> str:
    """The rest of a sentence about a token that ends then: the time left, and the advice."""
    seconds = (ends_ms - now_ms) / 1000
    if seconds <= 0:
        return "has ended: containers that start from now on cannot read HDFS. Start the application anew"
    when = f"{seconds / 86_400:.1f} days" if seconds >= 86_400 else f"{seconds / 3600:.1f} hours"
    return (
        f"ends in {when}, and the application has no newer one. Unless the ApplicationMaster gets one in time, stop"
        " this application with a savepoint before"
    )


def log_token_life(environment: Mapping[str, str], now_ms: int) -> None:
    """Logs when Hadoop will reject the tokens of this container; nothing without Kerberos."""
    path = environment.get(TOKEN_FILE)
    if not path:
        return
    try:
        left = sentence(token_lives(Path(path)), now_ms)
    except (OSError, TokenFileError) as error:
        _log.warning("the lifetime of Hadoop's tokens cannot be read: %s", error)
        return
    if left:
        _log.warning("%s", left)


def tokens_end(environment: Mapping[str, str]) -> int:
    """When the first token of this container ends, in epoch milliseconds; 0 = none ends, or that cannot be read."""
    path = environment.get(TOKEN_FILE)
    if not path:
        return 0
    try:
        return min((life.ends_ms for life in token_lives(Path(path))), default=0)
    except (OSError, TokenFileError):
        return 0
