"""PrefixOwner: keeps the prefix of a sink's transactions for its job, so that another living job is refused.

Owner: the task's thread of the sink's first subtask, which claims and closes. A thread of its own beats, with a
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
    Mark,
    PrefixWatch,
    Sign,
    job_of,
    owner_name,
    owners_prefix,
)
from yarrow.datastream.connectors.kafka.writing.sink_settings import OWNER, KafkaSinkSettings
from yarrow.runtime.common.clock import perf_counter

_LOG = logging.getLogger(__name__)

#: Seconds between two looks at the names of other jobs.
_LOOK_SECONDS: Final = 0.5
#: Names that one question asks for.
_NAMES_OF_QUESTION: Final = 1000
#: Seconds for which one beat is tried.
_ANSWER_SECONDS: Final = BEAT_SECONDS
#: Seconds that the end of a subtask waits until brokers know it.
_RELEASE_SECONDS: Final = 2.0


class PrefixOwner:
    """The claim of one job on the prefix of its sink."""

    def __init__(self, settings: KafkaSinkSettings, job_id: str, parallelism: int) -> None:
        """`parallelism`: how many subtasks the sink has."""
        assert settings.prefix is not None
        self._settings = settings
        self._prefix = settings.prefix
        self._job_id = job_id
        self._parallelism = parallelism
        self._name = owner_name(self._prefix, job_id)
        self._ended = threading.Event()
        #: When the job said last that it claims the prefix, in seconds.
        self._claimed = 0.0
        #: False = nothing is told at the end: others of the job may write, or a test stands for SIGKILL.
        self._releases = True
        self._thread = threading.Thread(target=self._run, name="kafka prefix owner", daemon=True)

    def claim(self, client: TransactionClient) -> None:
        """Take the prefix, and beat from now on.

        An attempt of a job that has had the prefix gets it at once. Another one waits up to WATCH_SECONDS if the
        brokers know of a job that did not end in order. Raises KafkaPrefixInUseError if that job lives, and
        KafkaTransactionError if brokers do not answer.
        """
        own = Sign.of(client.find(self._name))
        if own is None or not own.mark.had_prefix:
            self._watch_others(client)
        client.register(self._name, Mark.OWNS)
        self._thread.start()

    def _watch_others(self, client: TransactionClient) -> None:
        # The claim comes before the first look: of two jobs that claim at the same time, one sees the other.
        self._claim_again(client)
        names = client.listed(owners_prefix(self._prefix), EMPTY)
        others = {job for name in names if (job := job_of(self._prefix, name)) is not None} - {self._job_id}
        watch = PrefixWatch(self._job_id)
        self._look(client, watch, sorted(others))
        if watch.watched:
            _LOG.warning(
                "The sink waits up to %.0f s to see whether %s with its transactional id prefix %r still runs."
                " The brokers were not told of its end",
                WATCH_SECONDS,
                " or ".join(f"job {job}" for job in watch.watched),
                self._prefix,
            )
        while not watch.is_over():
            self._ended.wait(_LOOK_SECONDS)
            self._look(client, watch, watch.watched)
            if (owner := watch.owner()) is not None:
                client.register(self._name, Mark.WITHDRAWN)
                raise KafkaPrefixInUseError(self._refusal(owner))
        for job, mark in watch.dead().items():
            client.register(owner_name(self._prefix, job), mark)

    def _look(self, client: TransactionClient, watch: PrefixWatch, jobs: Sequence[str]) -> None:
        """Show the watch what brokers know of these jobs. Those of the last days may be thousands."""
        for begin in range(0, len(jobs), _NAMES_OF_QUESTION):
            some = jobs[begin : begin + _NAMES_OF_QUESTION]
            if perf_counter() - self._claimed >= BEAT_SECONDS:
                self._claim_again(client)
            asked = perf_counter()
            found = client.find_all([owner_name(self._prefix, job) for job in some])
            answered = perf_counter()
            for job in some:
                watch.saw(job, Sign.of(found.get(owner_name(self._prefix, job))), asked, answered)

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
        try:
            while not self._ended.wait(BEAT_SECONDS):
                fails = self._beat(client, Mark.OWNS, told=fails)
            if self._releases:
                self._beat(client, Mark.RELEASED, told=fails)
        finally:
            client.close()

    def _beat(self, client: TransactionClient, mark: Mark, *, told: bool) -> bool:
        """Tell the brokers; True if that failed. `told`: the log has the failure already."""
        try:
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

    def input_ended(self) -> None:
        """Hear that this subtask has no more rows. The other subtasks may go on, and nobody tells when they end.

        So the end of this subtask is not the end of the claim: the brokers are told nothing. The next job waits once.
        """
        if self._parallelism > 1:
            self._releases = False

    def close(self) -> None:
        """Tell the brokers that this attempt has ended, as far as it has and they answer soon."""
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join(_RELEASE_SECONDS)
