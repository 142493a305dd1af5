"""Hadoop's token file of this process as it is written anew: fresh tokens take the places of older ones.

Owner: each process that gets tokens for its container's file; blocking. Several Python processes of a Spark executor
write the same file, one at a time, so the token that HDFS has issued later stays. Readers see all of the old file or
all of the new one. No text that leaves here names a token.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from pathlib import Path

from yarrow.runtime.fs.hadoop_tokens import (
    MAGIC,
    TOKEN_FILE_VARIABLE,
    WRITABLE,
    HadoopToken,
    TokenFileError,
    parse_tokens,
    read_tokens,
    token_file,
    written_length,
)
from yarrow.runtime.fs.whole_files import replace_whole

_log = logging.getLogger(__name__)


def written_tokens(tokens: Sequence[HadoopToken]) -> bytes:
    """The content of a token file, in version 0 of Hadoop's Credentials."""
    parts = [MAGIC, bytes([WRITABLE]), written_length(len(tokens))]
    for token in tokens:
        names = (token.alias or token.service, token.kind, token.service)
        alias, kind, service = (name.encode() for name in names)
        for part in (alias, token.identifier, token.password, kind, service):
            parts += [written_length(len(part)), part]
    # Hadoop's secret keys, which tokens are not.
    parts.append(written_length(0))
    return b"".join(parts)


def with_fresh(old: Iterable[HadoopToken], fresh: Sequence[HadoopToken]) -> Sequence[HadoopToken]:
    """The fresh tokens, then the old ones without those of the same kind and service as a fresh one.

    An old token that HDFS has issued later than the fresh one stays in its place.
    """
    replaced = {(token.kind, token.service) for token in fresh}
    former, others = list[HadoopToken](), list[HadoopToken]()
    for token in old:
        (former if (token.kind, token.service) in replaced else others).append(token)
    return [*(reduce(_later, former, token) for token in fresh), *others]


def _later(one: HadoopToken, other: HadoopToken) -> HadoopToken:
    """The other token if it is for the same and HDFS has issued it later, as far as both say when; else this one."""
    if (one.kind, one.service) != (other.kind, other.service):
        return one
    first, second = one.issued_ms(), other.issued_ms()
    return other if first is not None and second is not None and second > first else one


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """A block that one thread of all processes enters at a time, with the tokens of that folder."""
    # On the folder itself: the file is replaced, and a lock of its own would stay behind.
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def take_tokens(content: bytes) -> None:
    """Puts the tokens of a file's content into the token file of this process, in place of those of the same services.

    Tokens of other services stay. The file's secret keys do not: no process of a container uses them.
    Raises TokenFileError if this process has no token file, if one of both cannot be read, or if it cannot be written.
    """
    fresh = parse_tokens(content)
    path = token_file()
    if path is None:
        raise TokenFileError(f"{TOKEN_FILE_VARIABLE} is not set: this process has no token file to renew")
    try:
        with _alone_in(path.parent):
            replace_whole(path, written_tokens(with_fresh(read_tokens(path), fresh)))
    except OSError as error:
        raise TokenFileError(f"{path} cannot be renewed: {error.strerror or error}") from None


def take_tokens_or_tell(content: bytes) -> None:
    """Does what `take_tokens` does, and logs its error: this process keeps its former tokens."""
    try:
        take_tokens(content)
    except TokenFileError as error:
        _log.warning("new delegation tokens are not in use: %s", error)
