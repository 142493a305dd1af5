"""The one module that speaks Kafka's protocol: transactions are ended, listed and described from any process.

Owner: the task's thread; the library runs a thread of its own for its connections. librdkafka cannot take up a
transaction of a process that has died. The protocol can: EndTxn needs the transaction's name, producer id and epoch.
Source: the message definitions of Apache Kafka 4.1, KIP-98, KIP-664, KIP-890. Must not know checkpoints.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from socket import socket
from typing import Any, Final, TypeVar
from weakref import WeakSet

import kafka.errors as errors
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.net.selector import NetworkSelector
from kafka.protocol.admin.transactions import DescribeTransactionsRequest, ListTransactionsRequest
from kafka.protocol.metadata import CoordinatorType, FindCoordinatorRequest
from kafka.protocol.producer.transaction import EndTxnRequest, InitProducerIdRequest

from yarrow.datastream.connectors.kafka.cluster.access_token import AccessToken
from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaConnectorError,
    KafkaTransactionError,
)
from yarrow.datastream.connectors.kafka.cluster.protocol_settings import protocol_settings
from yarrow.datastream.connectors.kafka.cluster.tls_context import check_client_certificate
from yarrow.datastream.connectors.kafka.cluster.tls_diagnosis import tls_failure
from yarrow.runtime.common.retry_pauses import RetryPauses

T = TypeVar("T")

#: Version 5 of EndTxn gives each transaction an epoch of its own, and a repeated commit would be refused.
_END_VERSION: Final = 3
_FIND_VERSION: Final = 3
_INIT_VERSION: Final = 4
_REQUEST_MS: Final = 15_000
_STOP_MS: Final = 2_000
#: Seconds of the pauses between two questions.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0

#: The state of a transaction whose rows are neither shown nor discarded.
ONGOING: Final = "Ongoing"

#: The state of a name under which no transaction was begun.
EMPTY: Final = "Empty"

#: States of a transaction whose end is decided and not yet written to all its partitions.
ENDING: Final = ("PrepareCommit", "PrepareAbort")

#: Answers to EndTxn that say: this transaction has ended in the other way, or is not known any more.
_ENDED_OTHERWISE: Final = (
    errors.InvalidTxnStateError,
    errors.ProducerFencedError,
    errors.InvalidProducerEpochError,
    errors.InvalidProducerIdMappingError,
)


def _passes(error: errors.KafkaError) -> bool:
    """Whether the library says that the same question may be answered later."""
    return bool(error.retriable)


def _shows_no_login(record: logging.LogRecord) -> bool:
    """Whether a log line of the library has no request of SASL, which holds passwords and tokens."""
    return not any(type(argument).__name__.startswith("Sasl") for argument in record.args or ())


def _shows_no_bytes(record: logging.LogRecord) -> bool:
    """Whether a log line is more than bytes and requests, which the library logs at DEBUG."""
    return record.levelno > logging.DEBUG


logging.getLogger("kafka.net.connection").addFilter(_shows_no_login)
logging.getLogger("kafka.protocol.parser").addFilter(_shows_no_bytes)


class _TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Gives the library its token."""

    def __init__(self, token: AccessToken) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token.value()

    def extensions(self) -> dict[str, str]:
        return self._token.extensions()


class _Network(NetworkSelector):  # type: ignore[misc]
    """The connections of one client.

    When a broker dies, the library may take the former connection for the new one, and forget the latter. So all
    sockets are closed at the end.
    """

    def __init__(self, **configuration: Any) -> None:
        super().__init__(**configuration)
        self._sockets: WeakSet[socket] = WeakSet()

    def keep(self, connected: socket) -> None:
        """Close the socket with the others."""
        self._sockets.add(connected)

    def close(self) -> None:
        """Release everything. The thread of the connections has ended before."""
        super().close()
        for connected in list(self._sockets):
            connected.close()


class _ClosedWhenRefused(KafkaNetSocket):  # type: ignore[misc]
    """Connects as the library does, without a proxy, and closes the socket if that fails or is given up.

    The library leaves such a socket to the garbage collector. It finds this class by the scheme of `proxy_url`.
    """

    SCHEMES = ("yarrow-direct",)

    async def sock_connect(
        self, net: _Network, sock: socket, sockaddr: Any, timeout_at: float | None = None
    ) -> socket:
        try:
            connected: socket = await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise
        net.keep(connected)
        return connected


@dataclass(frozen=True)
class TransactionFacts:
    """What the coordinator knows of a transaction."""

    state: str
    producer_id: int
    producer_epoch: int
    #: What the last producer of that name has asked for.
    timeout_ms: int


class TransactionClient:
    """Requests about transactions to one cluster; it connects with the first."""

    def __init__(
        self, settings: Mapping[str, str], properties: ClientProperties, timeout_seconds: float
    ) -> None:
        self._settings = settings
        self._properties = properties
        self._timeout = timeout_seconds
        self._token = (
            AccessToken(settings) if settings.get("sasl.mechanism", "").upper() == "OAUTHBEARER" else None
        )
        self._net: Any = None
        self._manager: Any = None

    def describe(self, name: str) -> TransactionFacts:
        """What the coordinator knows of the transaction `name`. Raises KafkaTransactionError."""
        facts = self.find(name)
        if facts is None:
            raise KafkaTransactionError(
                f"Kafka at {self._settings['bootstrap.servers']} does not know the transaction {name}"
            )
        return facts

    def find(self, name: str) -> TransactionFacts | None:
        """The same; None = the coordinator does not know the name."""

        async def ask(node: Any) -> TransactionFacts | None:
            answer = await self._manager.send(
                DescribeTransactionsRequest(transactional_ids=[name]), node_id=node
            )
            found = answer.transaction_states[0]
            if errors.for_code(found.error_code) is errors.TransactionalIdNotFoundError:
                return None
            _raise_for(found.error_code)
            return _facts(found)

        return self._of_coordinator("describe", name, ask)

    def find_all(self, names: Sequence[str]) -> dict[str, TransactionFacts]:
        """The same for many names, by one request to each broker. Names that are not known are left out.

        Raises KafkaTransactionError.
        """

        async def ask() -> dict[str, TransactionFacts]:
            facts: dict[str, TransactionFacts] = {}
            left = set(names)
            for broker in self._manager.cluster.brokers():
                if not left:
                    break
                request = DescribeTransactionsRequest(transactional_ids=sorted(left))
                answer = await self._manager.send(request, node_id=broker.node_id)
                for found in answer.transaction_states:
                    kind = errors.for_code(found.error_code)
                    if kind is errors.NotCoordinatorError:
                        # Another broker knows the name.
                        continue
                    if kind is not errors.TransactionalIdNotFoundError:
                        _raise_for(found.error_code)
                        facts[found.transactional_id] = _facts(found)
                    left.discard(found.transactional_id)
            if left:
                # Coordinators move. The question may be asked again.
                raise errors.NotCoordinatorError
            return facts

        return self._asked(f"describe {len(names)} transactions", ask)

    def end(self, name: str, producer_id: int, producer_epoch: int, *, commit: bool) -> str | None:
        """Commit or abort a transaction; one that has ended in this way already stays as it is.

        Returns None, or Kafka's name of the reason why it is too late. Raises KafkaTransactionError if the answer
        is not known: then it may be asked again.
        """

        async def ask(node: Any) -> str | None:
            request = EndTxnRequest(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                committed=commit,
                max_version=_END_VERSION,
            )
            answer = await self._manager.send(request, node_id=node)
            try:
                _raise_for(answer.error_code)
            except _ENDED_OTHERWISE as error:
                return str(error.message)
            return None

        return self._of_coordinator("commit" if commit else "abort", name, ask)

    def fence(self, name: str) -> None:
        """Abort what is open under the name, and shut out the producer that may still write there.

        Raises KafkaTransactionError.
        """
        self._init("abort", name, _REQUEST_MS)

    def register(self, name: str, timeout_ms: int) -> None:
        """Give the name its next epoch, with a time-out that `find` tells. Raises KafkaTransactionError.

        For names under which nobody writes: an open transaction would be aborted.
        """
        self._init("register", name, timeout_ms)

    def _init(self, verb: str, name: str, timeout_ms: int) -> None:
        async def ask(node: Any) -> None:
            request = InitProducerIdRequest(
                transactional_id=name,
                transaction_timeout_ms=timeout_ms,
                producer_id=-1,
                producer_epoch=-1,
                max_version=_INIT_VERSION,
            )
            answer = await self._manager.send(request, node_id=node)
            # While an abort runs, the answer is CONCURRENT_TRANSACTIONS.
            _raise_for(answer.error_code)

        self._of_coordinator(verb, name, ask)

    def listed(self, prefix: str, *states: str) -> list[str]:
        """Names of transactions in these states that begin with `prefix`, from all brokers.

        Raises KafkaTransactionError.
        """

        async def ask() -> list[str]:
            found: list[str] = []
            for broker in self._manager.cluster.brokers():
                request = ListTransactionsRequest(
                    state_filters=list(states), producer_id_filters=[], max_version=0
                )
                answer = await self._manager.send(request, node_id=broker.node_id)
                _raise_for(answer.error_code)
                found += [entry.transactional_id for entry in answer.transaction_states]
            return sorted(name for name in found if name.startswith(prefix))

        return self._asked(f"list the transactions {prefix}*", ask)

    def close(self) -> None:
        """Disconnect."""
        net, self._net = self._net, None
        manager, self._manager = self._manager, None
        if net is None:
            return

        async def end_connections() -> None:
            manager.close()

        try:
            # On the thread of the connections, which would otherwise use what is closed beside it.
            if manager is not None:
                with suppress(errors.KafkaError):
                    manager.run(end_connections)
        finally:
            net.stop(_STOP_MS)
            net.close()

    def _of_coordinator(self, verb: str, name: str, ask: Callable[[Any], Awaitable[T]]) -> T:
        async def find_and_ask() -> T:
            request = FindCoordinatorRequest(
                key=name, key_type=CoordinatorType.TRANSACTION.value, max_version=_FIND_VERSION
            )
            answer = await self._manager.send(request)
            node = self._manager.cluster.add_coordinator(
                answer, CoordinatorType.TRANSACTION, name, synthesize_node_id=False
            )
            return await ask(node)

        return self._asked(f"{verb} the transaction {name}", find_and_ask)

    def _asked(self, what: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask until there is an answer or time is over."""
        pauses = RetryPauses(self._timeout, _FIRST_PAUSE, _LONGEST_PAUSE)

        async def until_answered() -> T:
            while True:
                try:
                    return await ask()
                except errors.KafkaError as error:
                    pause = pauses.next_seconds() if _passes(error) else None
                    if pause is None:
                        raise
                await self._net.sleep(pause)

        try:
            self._connect()
            answered: T = self._manager.run(until_answered)
        except (errors.KafkaError, KafkaConnectorError) as error:
            # The next question begins with new connections.
            self.close()
            reason = self._reason(error) if isinstance(error, errors.KafkaError) else str(error)
            failed = KafkaTransactionError(
                f"Kafka at {self._settings['bootstrap.servers']} did not {what}:"
                f" {self._properties.with_secrets_hidden(reason)}"
            )
            failed.is_transient = not isinstance(error, errors.KafkaError) or _passes(error)
            failed.needs_user = isinstance(error, errors.AuthorizationError)
            raise failed from error
        except BaseException:
            # A fault of the library: its connections are in no known state.
            self.close()
            raise
        return answered

    def _reason(self, error: errors.KafkaError) -> str:
        """The text of an error. Errors of connections tell little, so a second look at the broker finds the reason."""
        if not _passes(error):
            return _text(error)
        why = tls_failure(self._settings)
        return why or f"{_text(error)}. Check bootstrap.servers, security.protocol, user and password"

    def _connect(self) -> None:
        if self._manager is not None:
            return
        check_client_certificate(self._settings)
        configuration = {
            "client_id": "yarrow-transactions",
            "request_timeout_ms": _REQUEST_MS,
            "reconnect_backoff_max_ms": 1000,
            "proxy_url": f"{_ClosedWhenRefused.SCHEMES[0]}:",
            **protocol_settings(self._settings),
        }
        if self._token is not None:
            # Now: an error of the endpoint would be lost in the library's thread.
            self._token.value()
            configuration["sasl_oauth_token_provider"] = _TokenProvider(self._token)
        self._net = _Network(**configuration)
        self._manager = KafkaConnectionManager(self._net, **configuration)
        self._net.start()
        self._manager.bootstrap(1000 * self._timeout)


def _facts(found: Any) -> TransactionFacts:
    return TransactionFacts(
        found.transaction_state, found.producer_id, found.producer_epoch, found.transaction_timeout_ms
    )


def _raise_for(code: int) -> None:
    kind = errors.for_code(code)
    if kind is not errors.NoError:
        raise kind


def _text(error: errors.KafkaError) -> str:
    if isinstance(error, errors.TransactionalIdAuthorizationFailedError):
        return (
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED. Give the user of the sink the rights WRITE and DESCRIBE on"
            " transactional ids that begin with the sink's prefix"
        )
    if isinstance(error, errors.ClusterAuthorizationFailedError):
        return "CLUSTER_AUTHORIZATION_FAILED. Give the user of the sink the right DESCRIBE on the cluster"
    return str(error)
