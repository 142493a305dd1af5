"""Requests to WebHDFS: which are repeated and for how long, and the errors that callers see.

Owner: any thread; nothing is kept between two calls. What fails because HDFS restarts, fails over or is in safe mode is
repeated for a while. Of what may not be sent twice the caller learns that its outcome is unknown. Errors of the client
do not leave the modules of WebHDFS: they become OSErrors of the matching kind or FileSystemError.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.config.options import cluster
from yarrow.runtime.fs.hdfs_settings import hdfs_settings
from yarrow.runtime.fs.retries import Retries, TransientError
from yarrow.runtime.fs.webhdfs_sessions import SessionPool

T = TypeVar("T")

_ERRORS: Mapping[str, type[OSError]] = {
    "FileNotFoundException": FileNotFoundError,
    "FileAlreadyExistsException": FileExistsError,
    "AccessControlException": PermissionError,
    "PathIsNotEmptyDirectoryException": OSError,
}
_SAFE_MODE = "SafeModeException"
#: Answers of nodes that are starting or stopping, or that ask such nodes. No such request has changed
#: anything.
_PASSING = frozenset(
    {
        _SAFE_MODE,
        "StandbyException",
        "RetriableException",
        "ConnectException",
        "NoRouteToHostException",
        "ConnectTimeoutException",
        "BlockMissingException",
    }
)
#: The connection between two nodes broke in the middle of a request: whether it has changed something is not known.
_BROKEN = frozenset({"EOFException", "SocketException", "SocketTimeoutException", "ClosedChannelException"})
#: Texts of answers when no data node has come back yet, or a web server is up before its service.
_NOT_READY = (
    "could only be written to 0 of",
    "Failed to find datanode",
    "No active nodes contain this block",
    "No active and not excluded nodes contain this block",
    "Service Unavailable",
)
#: An answer with the first means the second.
_NOT_LET_IN = (
    (
        "SecretManager$InvalidToken",
        (
            "HDFS does not know the delegation token (any more), which was cancelled, or has reached its"
            " maximum lifetime. Start the application, or log in, anew"
        ),
    ),
    (
        "Authentication failure",
        "HDFS asks for Kerberos, and the Hadoop configuration of this process does not: HADOOP_CONF_DIR must name"
        " the cluster's own (hadoop.security.authentication: kerberos)",
    ),
)


class UnknownRequestOutcomeError(TransientError):
    """Failed after the request was sent: it may have been carried out."""


def retries() -> Retries:
    """For as long as the configuration says."""
    return Retries(hdfs_settings().retry_seconds, cluster.WEBHDFS_RETRY_TIMEOUT.key)


def repeated(pool: SessionPool, path: str, request: Callable[[Any], T], *others: str) -> T:
    """The answer to a request that may be sent twice, for a path and perhaps `others`."""

    def attempt(failures: int) -> T:
        with pool.session() as client, translated(" -> ".join((path, *others))):
            return request(client)

    return retries().run(attempt, path, *others)


def length_of(client: Any, plain: str, path: str) -> int | None:
    """The length of a file; None if there is no file."""
    with translated(path):
        try:
            return int(client.status(plain)["length"])
        except Exception as error:
            if isinstance(our_error(path, error), FileNotFoundError):
                return None
            raise


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Turns errors of the client into ours."""
    try:
        yield
    except Exception as error:
        ours = our_error(path, error)
        if ours is error:
            raise
        raise ours from error


def our_error(path: str, error: Exception) -> Exception:
    """The error for callers in place of an error of the client; other errors stay as they are."""
    import hdfs
    import requests
    import urllib3.exceptions

    if isinstance(error, hdfs.HdfsError):
        return _refusal(path, error.exception or "", str(error))
    if isinstance(error, requests.RequestException | urllib3.exceptions.HTTPError):
        text = (
            f"{path}: WebHDFS cannot be reached ({error}). Check the address: webhdfs://host:port names the"
            " web server of an HDFS that Hadoop's files do not describe. Check that dfs.webhdfs.enabled is"
            " true, and that the names of the data nodes resolve from here"
        )
        never_sent = isinstance(error, requests.ConnectTimeout) or "NewConnectionError" in repr(error)
        return TransientError(text) if never_sent else UnknownRequestOutcomeError(text)
    if isinstance(error, KeyError):
        return FileSystemError(
            f"{path}: what answers is no WebHDFS (its answer has no {error}); check the address of the NameNode's web "
            "server, and that dfs.webhdfs.enabled is true"
        )
    if isinstance(error, ConnectionError):
        return UnknownRequestOutcomeError(f"{path}: the connection to HDFS broke: {error}")
    return error


def _refusal(path: str, exception: str, said: str) -> Exception:
    for sign, sentence in _NOT_LET_IN:
        if sign in said:
            return FileSystemError(f"{path}: {sentence}")
    kind = _ERRORS.get(exception)
    if kind is None and "does not exist" in said:
        kind = FileNotFoundError
    if kind is not None:
        return kind(f"{path}: {said}")
    if exception == _SAFE_MODE or "in safe mode" in said:
        return TransientError(
            f"{path}: the NameNode is in safe mode and takes no changes. It leaves safe mode once enough"
            f" DataNodes have reported, or by `hdfs dfsadmin -safemode leave` ({said})"
        )
    if exception in _PASSING or any(sign in said for sign in _NOT_READY):
        return TransientError(f"{path}: HDFS cannot answer yet: {exception}: {said}")
    if exception in _BROKEN:
        return UnknownRequestOutcomeError(f"{path}: HDFS broke off: {exception}: {said}")
    return FileSystemError(f"{path}: HDFS refused: {said}")
