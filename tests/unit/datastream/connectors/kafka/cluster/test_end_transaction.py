"""TransactionClient closes the sockets of connections that fail."""

from __future__ import annotations

import gc
import socket
import warnings
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from yarrow.datastream.connectors.kafka.cluster.client_properties import ClientProperties
from yarrow.datastream.connectors.kafka.cluster.client_settings import producer_settings
from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionClient
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaTransactionError


@pytest.fixture
def refusing() -> Iterator[str]:
    """An address at which nobody listens, and which nobody else gets."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address whose queue of new connections is full: who connects waits."""
    with ExitStack() as opened:
        listening = opened.enter_context(socket.socket())
        listening.bind(("127.0.0.1", 0))
        listening.listen(0)
        for _ in range(3):
            waiting = opened.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.parametrize("address", ["refusing", "silent"])
def test_a_connection_that_fails_leaves_no_socket(address: str, request: pytest.FixtureRequest) -> None:
    properties = ClientProperties({"bootstrap.servers": request.getfixturevalue(address)})
    gc.collect()
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always", ResourceWarning)
        client = TransactionClient(producer_settings("test", properties), properties, 0.3)
        with pytest.raises(KafkaTransactionError):
            client.find("any")
        client.close()
        gc.collect()
    assert [str(entry.message) for entry in told if entry.category is ResourceWarning] == []
