"""PrefixOwner: keeps the prefix of a sink's transactions for its job, so that another living job is refused.

Owner: the task's thread. That of the sink's first subtask claims the prefix. A thread of each subtask beats, over a
connection of its own, so that no broker and no row delays a beat. A beat that fails is tried again with the next one:
nothing of a job depends on it. Must not write records or end transactions.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Final

from yarrow.datastream.connectors.kafka.cluster.end_transaction import EMPTY, TransactionClient
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaPrefixInUseError,
    KafkaTransactionError,
)
from yarrow.datastream.connectors.kafka.writing.prefix_claims import (
    BEAT_SECONDS,
    WATCH_SECONDS,
    Holder,
    Mark,
    PrefixWatch,
    Sign,
    holder_of,
    owner_name,
    owners_prefix,
)
from yarrow.datastream.connectors.kafka.writing.sink_settings import OWNER, KafkaSinkSettings
from yarrow.runtime.common.clock import perf_counter

_LOG = logging.getLogger(__name__)

#: Seconds between two looks at the names of other jobs, or at that of the first subtask.
_LOOK_SECONDS: Final = 0.5
#: Names that one question asks for.
_NAMES_OF_QUESTION: Final = 1000
#: Seconds for which one beat is tried.
_ANSWER_SECONDS: Final = BEAT_SECONDS
#: Seconds that the end of a subtask waits until brokers know it.
_RELEASE_SECONDS: Final = 2.0


class PrefixOwner:
    """The part of one subtask in its job's claim on the prefix of the sink."""

    def __init__(self, settings: KafkaSinkSettings, holder: Holder, parallelism: int) -> None:
        """`parallelism`: how many subtasks the sink has."""
        assert settings.prefix is not None
        self._settings = settings
        self._prefix = settings.prefix
        self._holder = holder
        self._job_id = holder.job_id
        self._parallelism = parallelism
        self._name = owner_name(self._prefix, holder)
        #: The job has the prefix. A subtask that is not the first one does not know at first.
        self._holds = False
        self._ended = threading.Event()
        #: When the job said last that it claims the prefix, in seconds.
        self._claimed = 0.0
        #: False = nothing is told at the end: a test stands for SIGKILL.
        self._releases = True
        self._thread = threading.Thread(target=self._run, name="kafka prefix owner", daemon=True)

    def claim(self, client: TransactionClient) -> None:
        """Take the prefix, and beat from now on.

        The first subtask takes the prefix for the job; the thread of another one waits for that. An attempt of a job
        that has had the prefix gets it at once. Another one waits up to WATCH_SECONDS if the brokers know of a job that
        did not end in order. Raises KafkaPrefixInUseError if that job lives, and KafkaTransactionError if brokers do
        not answer.
        """
        if self._holder.subtask == 0:
            own = Sign.of(client.find(self._name))
            if own is None or not own.mark.had_prefix:
                self._watch_others(client)
            else:
                self._forget_surplus(client)
            client.register(self._name, Mark.OWNS)
            self._holds = True
        self._thread.start()

    def _forget_surplus(self, client: TransactionClient) -> None:
        """Tell that subtasks have ended which an earlier attempt had, and which the sink does not have any more."""
        for name in client.listed(owner_name(self._prefix, Holder(self._job_id)), EMPTY):
            holder = holder_of(self._prefix, name)
            if holder is not None and holder.subtask >= self._parallelism:
                client.register(name, Mark.RELEASED)

    def _watch_others(self, client: TransactionClient) -> None:
        # The claim comes before the first look: of two jobs that claim at the same time, one sees the other.
        self._claim_again(client)
        names = client.listed(owners_prefix(self._prefix), EMPTY)
        holders = sorted(holder for name in names if (holder := holder_of(self._prefix, name)) is not None)
        watch = PrefixWatch(self._job_id)
        self._look(client, watch, [holder for holder in holders if holder.job_id != self._job_id])
        if watch.watched:
            _LOG.warning(
                "The sink waits up to %.0f s to see whether %s with its transactional id prefix %r still runs."
                " The brokers were not told of its end",
                WATCH_SECONDS,
                " or ".join(f"job {job}" for job in sorted({holder.job_id for holder in watch.watched})),
                self._prefix,
            )
        while not watch.is_over():
            self._ended.wait(_LOOK_SECONDS)
            self._look(client, watch, watch.watched)
            if (owner := watch.owner()) is not None:
                client.register(self._name, Mark.WITHDRAWN)
                raise KafkaPrefixInUseError(self._refusal(owner))
        for holder, mark in watch.dead().items():
            client.register(owner_name(self._prefix, holder), mark)

    def _look(self, client: TransactionClient, watch: PrefixWatch, holders: Sequence[Holder]) -> None:
        """Show the watch what brokers know of these holders. Those of the last days may be thousands."""
        for begin in range(0, len(holders), _NAMES_OF_QUESTION):
            some = holders[begin : begin + _NAMES_OF_QUESTION]
            if perf_counter() - self._claimed >= BEAT_SECONDS:
                self._claim_again(client)
            asked = perf_counter()
            found = client.find_all([owner_name(self._prefix, holder) for holder in some])
            answered = perf_counter()
            for holder in some:
                watch.saw(holder, Sign.of(found.get(owner_name(self._prefix, holder))), asked, answered)

    def _claim_again(self, client: TransactionClient) -> None:
        self._claimed = perf_counter()
        client.register(self._name, Mark.CLAIMS)

    def _refusal(self, owner: str) -> str:
        topic = self._settings.serializer.fixed_topic()
        into = "" if topic is None else f" for topic {topic}"
        return (
            f"{OWNER} of job {self._job_id}{into} has the transactional id prefix {self._prefix!r}, with which job"
            f" {owner} writes now. Set another one by set_transactional_id_prefix, or end job {owner} first."
            f" If job {owner} has lost its master, wait until its TaskExecutors have ended, and start this job again"
        )

    def _run(self) -> None:
        client = TransactionClient(self._settings.producer, self._settings.properties, _ANSWER_SECONDS)
        fails = False
        pause = BEAT_SECONDS if self._holds else 0.0
        try:
            while not self._ended.wait(pause):
                fails = self._beat(client, Mark.OWNS, told=fails)
                pause = BEAT_SECONDS if self._holds else _LOOK_SECONDS
            if self._releases and self._holds:
                self._beat(client, Mark.RELEASED, told=fails)
        finally:
            client.close()

    def _beat(self, client: TransactionClient, mark: Mark, *, told: bool) -> bool:
        """Tell the brokers; True if that failed. `told`: the log has the failure already."""
        try:
            if not self._holds:
                first = Sign.of(client.find(owner_name(self._prefix, Holder(self._job_id))))
                self._holds = first is not None and first.mark.had_prefix
            if self._holds:
                client.register(self._name, mark)
        except Exception as error:
            # Also what no request should raise: a thread that ends here would end the claim in silence.
            if not told:
                _LOG.warning(
                    "The prefix %r is not kept for this job meanwhile: %s",
                    self._prefix,
                    error,
                    exc_info=not isinstance(error, KafkaTransactionError),
                )
            return True
        return False

    def close(self) -> None:
        """Tell the brokers that this subtask has ended, if they answer soon. The others keep the prefix."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(_RELEASE_SECONDS)
