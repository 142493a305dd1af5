"""TwoPhaseCommitSink: exactly-once into anything that can hold rows back until it is told to show them.

Owner: the client builds the sink; every other call comes on the task's thread, one instance a subtask. Rows
between two checkpoints make one transaction. A transaction is data (see Sink): the checkpoint that covers it
holds it. It is committed when that checkpoint is complete, in another process if this one has died. Must not
know the engine's state or barriers.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

from yarrow.datastream.connectors.base import (
    Committer,
    DeliveryGuarantee,
    KeptBy,
    Sink,
    SinkWriter,
    SinkWriterContext,
)
from yarrow.datastream.connectors.transaction_names import TransactionNames
from yarrow.runtime.common.ids import RandomIdFactory

__all__ = ["TransactionContext", "TwoPhaseCommitSink"]

T = TypeVar("T")
TransactionT = TypeVar("TransactionT")


class TransactionContext:
    """The engine as a TwoPhaseCommitSink sees it when it begins a transaction or recovers."""

    def __init__(self, context: SinkWriterContext, names: TransactionNames) -> None:
        self._context = context
        self._names = names

    @property
    def subtask_index(self) -> int:
        """This subtask, from 0."""
        return self._context.subtask_index

    @property
    def parallelism(self) -> int:
        """The parallelism of the sink."""
        return self._context.parallelism

    @property
    def configuration(self) -> Mapping[str, str]:
        """The job's configuration."""
        return self._context.configuration

    @property
    def restored_checkpoint_id(self) -> int | None:
        """The checkpoint from which the job continues; None = the job begins with empty state."""
        return self._context.restored_checkpoint_id

    def new_name(self) -> str:
        """A name for a transaction: letters, digits and dashes; no attempt of any job makes it again."""
        return self._names.next()

    def is_leftover(self, name: str) -> bool:
        """True for the name of a transaction that an earlier attempt began and that will never be committed.

        True in one subtask alone. False for all that a checkpoint still holds, and for other jobs and sinks.
        """
        return self._names.is_leftover(name)


class TwoPhaseCommitSink(Sink[T], Generic[T, TransactionT]):
    """Base of sinks that write in transactions.

    In each subtask the engine first calls `open`, `commit` for each restored transaction, and `recover`. For
    the rows up to a checkpoint it then calls `begin_transaction`, `write` for each slice of rows, and
    `pre_commit`. It calls `commit` when the checkpoint is complete. Without a row no transaction is begun.
    `abort` is called for a transaction that is known to be useless. A killed process cannot do that, so
    `recover` looks for the leftovers of such processes.

    The instance is pickled on the client: open connections in `open`, not in `__init__`.
    """

    #: EXACTLY_ONCE commits when checkpoints complete (without checkpoints: at the end of the input). With the others
    #: a transaction is committed before the checkpoint and at the latest after `commit_interval`: rows are seen
    #: sooner, and twice after a failure. None = the strongest that holds in the job.
    delivery_guarantee: DeliveryGuarantee | None = None
    #: Longest life of a transaction without EXACTLY_ONCE, ms.
    commit_interval: int = 1000

    def guarantees(self) -> Mapping[DeliveryGuarantee, KeptBy]:
        """The data of a transaction are all that another process needs to finish it."""
        return {DeliveryGuarantee.EXACTLY_ONCE: KeptBy.TRANSACTION}

    def open(self) -> None:
        """Connects; called once before everything else."""
        return None

    @abstractmethod
    def begin_transaction(self, context: TransactionContext) -> TransactionT:
        """Return the data that names a new transaction: all that `commit` in another process needs."""

    @abstractmethod
    def write(
        self, transaction: TransactionT, rows: Sequence[T], timestamps: Sequence[int | None] | None
    ) -> None:
        """Adds rows to the transaction; nobody may see them yet."""

    def pre_commit(self, transaction: TransactionT) -> None:
        """Makes the transaction durable: from now on `commit` must be able to succeed after any crash."""
        return None

    @abstractmethod
    def commit(self, transaction: TransactionT) -> None:
        """Shows the transaction's rows, all at once; a transaction that is committed already is left as it is.

        An exception has it tried again later (see Committer.commit).
        """

    @abstractmethod
    def abort(self, transaction: TransactionT) -> None:
        """Remove a transaction that will never be committed; a transaction that is gone already is no error."""

    def recover(self, context: TransactionContext) -> None:
        """Aborts what processes that died left behind: the transactions for whose names `context.is_leftover`."""
        return None

    def close(self) -> None:
        """Disconnects; called once, also after a failure."""
        return None

    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> SinkWriter[T]:
        """The writer that calls this sink; there is nothing to restore but transactions."""
        names = TransactionNames(context, RandomIdFactory())
        transactions = TransactionContext(context, names)
        self.recover(transactions)
        return _TransactionWriter(self, context, transactions, names)

    def create_committer(self) -> Committer:
        """The committer that calls this sink."""
        self.open()
        return _TransactionCommitter(self)


class _TransactionWriter(SinkWriter[T], Generic[T, TransactionT]):
    """Keeps the one transaction that is open."""

    def __init__(
        self,
        sink: TwoPhaseCommitSink[T, TransactionT],
        context: SinkWriterContext,
        transactions: TransactionContext,
        names: TransactionNames,
    ) -> None:
        self._sink = sink
        self._context = context
        self._commits_itself = context.delivery_guarantee is not DeliveryGuarantee.EXACTLY_ONCE
        self._transactions = transactions
        self._names = names
        #: At most one: begun and not pre-committed.
        self._open: list[TransactionT] = []
        self._prepared: list[TransactionT] = []

    def write(self, rows: Sequence[T], timestamps: Sequence[int | None] | None) -> None:
        if not rows:
            return
        if not self._open:
            self._open.append(self._sink.begin_transaction(self._transactions))
            if self._commits_itself:
                due = self._context.current_processing_time() + self._sink.commit_interval
                self._context.register_timer(due, lambda: self.flush(False))
        self._sink.write(self._open[0], rows, timestamps)

    def flush(self, end_of_input: bool) -> None:
        if not self._open:
            return
        self._sink.pre_commit(self._open[0])
        transaction = self._open.pop()
        if self._commits_itself:
            self._sink.commit(transaction)
        else:
            self._prepared.append(transaction)

    def prepare_commit(self) -> list[Any]:
        prepared, self._prepared = self._prepared, []
        return list(prepared)

    def snapshot_state(self, checkpoint_id: int) -> list[Any]:
        self._names.checkpoint_taken(checkpoint_id)
        return []

    def close(self) -> None:
        lost, self._open, self._prepared = [*self._open, *self._prepared], [], []
        for transaction in lost:
            self._sink.abort(transaction)


class _TransactionCommitter(Committer, Generic[TransactionT]):
    """Hands on to the sink; the last to be closed."""

    def __init__(self, sink: TwoPhaseCommitSink[Any, TransactionT]) -> None:
        self._sink = sink

    def commit(self, committables: Sequence[Any]) -> None:
        for transaction in committables:
            self._sink.commit(transaction)

    def abort(self, committables: Sequence[Any]) -> None:
        for transaction in committables:
            self._sink.abort(transaction)

    def close(self) -> None:
        self._sink.close()
