"""A two-phase-commit sink into a folder, and the rows committed there: tests prove exactly-once with it.

Owner: the sink's methods run on the task's thread; the reader in the test. One file a transaction, `open/<name>` until
it is committed and `committed/<name>` afterwards, with every commit that had an effect noted in `commits`. Rows are
written by `repr` and must be Python literals.
"""

from __future__ import annotations

import ast
import os
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from yarrow.datastream.connectors.base import CommitRejectedError
from yarrow.datastream.connectors.transaction_names import checkpoint_of
from yarrow.datastream.connectors.two_phase_commit import TransactionContext, TwoPhaseCommitSink

_OPEN = "open"
_COMMITTED = "committed"
_COMMITS = "commits"


@dataclass(frozen=True, slots=True)
class FileTransaction:
    """One transaction, which is one file."""

    name: str


class TransactionalFiles(TwoPhaseCommitSink[Any, FileTransaction]):
    """Writes rows to files of `folder`; see the module's docstring."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self) -> None:
        self._streams: dict[str, TextIO] = {}
        for part in (_OPEN, _COMMITTED):
            os.makedirs(os.path.join(self.folder, part), exist_ok=True)

    def begin_transaction(self, context: TransactionContext) -> FileTransaction:
        name = context.new_name()
        self._streams[name] = open(self._path(_OPEN, name), "x", encoding="utf-8")  # noqa: SIM115
        return FileTransaction(name)

    def write(
        self,
        transaction: FileTransaction,
        rows: Sequence[Any],
        timestamps: Sequence[int | None] | None,
    ) -> None:
        self._streams[transaction.name].writelines(f"{row!r}\n" for row in rows)

    def pre_commit(self, transaction: FileTransaction) -> None:
        self._streams.pop(transaction.name).close()

    def commit(self, transaction: FileTransaction) -> None:
        source, target = (self._path(part, transaction.name) for part in (_OPEN, _COMMITTED))
        try:
            os.link(source, target)
        except FileExistsError:
            pass
        except FileNotFoundError:
            if not os.path.exists(target):
                raise CommitRejectedError(
                    f"transaction {transaction.name} is neither open nor committed in {self.folder}"
                ) from None
        else:
            self._note(transaction.name)
        with suppress(FileNotFoundError):
            os.unlink(source)

    def _note(self, name: str) -> None:
        log = os.open(os.path.join(self.folder, _COMMITS), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(log, f"{name}\n".encode())
        finally:
            os.close(log)

    def abort(self, transaction: FileTransaction) -> None:
        stream = self._streams.pop(transaction.name, None)
        if stream is not None:
            stream.close()
        with suppress(FileNotFoundError):
            os.unlink(self._path(_OPEN, transaction.name))

    def recover(self, context: TransactionContext) -> None:
        for name in os.listdir(os.path.join(self.folder, _OPEN)):
            if context.is_leftover(name):
                self.abort(FileTransaction(name))

    def close(self) -> None:
        streams, self._streams = self._streams, {}
        for stream in streams.values():
            stream.close()

    def _path(self, part: str, name: str) -> str:
        return os.path.join(self.folder, part, name)


class CommittedFiles:
    """The transactions that a TransactionalFiles sink has committed in a folder."""

    def __init__(self, folder: str | Path) -> None:
        self._folder = Path(folder)

    def rows(self) -> list[Any]:
        """All rows; rows of one key are in the order in which they were written."""
        found = []
        for file in sorted(self._files(_COMMITTED), key=lambda file: (checkpoint_of(file.name), file.name)):
            found += [ast.literal_eval(line) for line in file.read_text("utf-8").splitlines()]
        return found

    def by_key(self, key: Callable[[Any], Any]) -> dict[Any, list[Any]]:
        """The rows of each key, in order."""
        found: dict[Any, list[Any]] = {}
        for row in self.rows():
            found.setdefault(key(row), []).append(row)
        return found

    @property
    def transactions(self) -> int:
        """The number of committed transactions."""
        return len(self._files(_COMMITTED))

    def leftovers(self) -> list[str]:
        """Names of transactions that are neither committed nor aborted."""
        return sorted(file.name for file in self._files(_OPEN))

    def committed_twice(self) -> list[str]:
        """Names of transactions whose commit had an effect more than once: must be empty."""
        log = self._folder / _COMMITS
        lines = log.read_text("utf-8").splitlines() if log.exists() else []
        return [name for name, times in Counter(lines).items() if times > 1]

    def _files(self, part: str) -> list[Path]:
        folder = self._folder / part
        return list(folder.iterdir()) if folder.exists() else []
