"""ZooKeeperRecords: records as nodes; each write is one transaction that checks the version of the epoch's node.

Owner: any thread; calls block, for at most the attempts of the settings. A write that may have been lost is
repeated on the present content, so that it takes place once. If that cannot be found out, UnknownWriteError
is raised.
"""

from __future__ import annotations

from kazoo.exceptions import KazooException

from yarrow.runtime.ha.records import (
    Change,
    Delete,
    LeadershipLostError,
    Put,
    RecordsError,
    UnknownWriteError,
)
from yarrow.runtime.ha.zookeeper_client import (
    BROKEN,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    ZooKeeperClient,
    ZooKeeperTransaction,
    ZooKeeperUnreachableError,
    refusal,
)

#: The node whose version every write checks.
EPOCH_NODE = "leader/epoch"
#: How often a transaction is rebuilt because another thread of this process changed something in between.
_COLLISIONS = 20


class ZooKeeperRecords:
    """Implements LeaderRecords."""

    def __init__(self, client: ZooKeeperClient, epoch: int, epoch_version: int) -> None:
        """`epoch_version`: of EPOCH_NODE since the epoch began."""
        self._client = client
        self.epoch = epoch
        self._version = epoch_version

    def read(self, path: str) -> bytes | None:
        """See LeaderRecords."""

        def once(timeout: float) -> bytes | None:
            try:
                return self._client.get(path, timeout)[0]
            except NoNodeError:
                return None

        return self._client.repeated(once, f"reading {path}")

    def children(self, path: str) -> tuple[str, ...]:
        """See LeaderRecords."""

        def once(timeout: float) -> tuple[str, ...]:
            try:
                return tuple(sorted(self._client.children(path, timeout)))
            except NoNodeError:
                return ()

        return self._client.repeated(once, f"reading {path}")

    def write(self, *changes: Change) -> None:
        """See LeaderRecords."""
        what = ", ".join(change.path for change in changes)
        settings = self._client.settings
        doubtful: BaseException | None = None
        collisions = attempts = 0
        while attempts <= settings.max_retries:
            if not self._client.wait_until_connected(max(settings.retry_wait, 0.1)):
                attempts += 1
                continue
            timeout = max(self._client.session_timeout, 1.0)
            sent = False
            try:
                transaction = self._transaction(changes, timeout)
                sent = True
                transaction.commit(timeout)
                return
            except BROKEN as error:
                attempts += 1
                doubtful = error if sent else doubtful
            except BadVersionError as error:
                self._fenced(what, doubtful, error)
            except (NoNodeError, NodeExistsError, NotEmptyError) as error:
                collisions += 1
                if collisions > _COLLISIONS:
                    raise _refused(what, f"{type(error).__name__} again and again", doubtful) from error
            except KazooException as error:
                raise _refused(what, refusal(error), doubtful) from error
        text = self._client.unreachable(f"writing {what}", attempts)
        if doubtful is not None:
            raise UnknownWriteError(
                f"{text}, and the connection broke meanwhile: the outcome of the write is unknown"
            )
        raise ZooKeeperUnreachableError(text)

    def _fenced(self, what: str, doubtful: BaseException | None, error: BaseException) -> None:
        text = f"another master has led since epoch {self.epoch}"
        if doubtful is not None:
            raise UnknownWriteError(f"{text}; it is unknown whether {what} was written before") from error
        raise LeadershipLostError(f"{text}: {what} was not written") from error

    def _transaction(self, changes: tuple[Change, ...], timeout: float) -> ZooKeeperTransaction:
        """The remaining changes as the nodes look now."""
        transaction = self._client.transaction()
        transaction.check(EPOCH_NODE, self._version)
        made: set[str] = set()
        for change in changes:
            match change:
                case Put(path, data):
                    self._put(transaction, path, data, made, timeout)
                case Delete(path):
                    for node in self._below(path, timeout):
                        transaction.delete(node)
        return transaction

    def _put(
        self, transaction: ZooKeeperTransaction, path: str, data: bytes, made: set[str], timeout: float
    ) -> None:
        if path in made or self._client.exists(path, timeout):
            transaction.set(path, data)
            return
        parts = path.split("/")
        for length in range(1, len(parts)):
            parent = "/".join(parts[:length])
            if parent not in made and not self._client.exists(parent, timeout):
                transaction.create(parent, b"")
                made.add(parent)
        transaction.create(path, data)
        made.add(path)

    def _below(self, path: str, timeout: float) -> list[str]:
        """The node and all below it, the deepest first; nothing if it is gone."""
        try:
            names = self._client.children(path, timeout)
        except NoNodeError:
            return []
        nodes = [node for name in names for node in self._below(f"{path}/{name}", timeout)]
        return [*nodes, path]


def _refused(what: str, why: str, doubtful: BaseException | None) -> RecordsError:
    """The error of a refused write; an earlier attempt without answer may have taken place."""
    if doubtful is not None:
        return UnknownWriteError(f"writing {what}: {why}; it is unknown whether {what} was written before")
    return RecordsError(f"{what} was not written: {why}")
