"""The claim of a sink on its prefix: when it begins, how it looks at others, and that its thread ends in order.

The requests are kept in a list here. What brokers make of them is shown by tests/kafka/test_prefix_owners.py.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from yarrow.common.serialization import SchemaUnavailableError
from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink, ProducerRecord
from yarrow.datastream.connectors.kafka.cluster.client import ClusterClient
from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionClient
from yarrow.datastream.connectors.kafka.writing.prefix_owner import PrefixOwner
from yarrow.datastream.connectors.kafka.writing.record_serialization import Encode

OWN = "5" * 32


class RegistryGone(KafkaRecordSerializationSchema[Any]):
    """Its schema registry does not answer."""

    def serialize(self, element: Any, timestamp: int | None) -> ProducerRecord | None:
        raise AssertionError("no writer was made")

    def encoder(self) -> Encode:
        raise SchemaUnavailableError("gone")


@pytest.mark.parametrize("leaves_out_rows", [False, True])
def test_a_writer_that_cannot_be_made_keeps_no_prefix(
    monkeypatch: pytest.MonkeyPatch, leaves_out_rows: bool
) -> None:
    owners: list[str] = []
    monkeypatch.setattr(PrefixOwner, "claim", lambda owner, client: owners.append("claimed"))
    monkeypatch.setattr(PrefixOwner, "close", lambda owner: owners.remove("claimed"))
    monkeypatch.setattr(ClusterClient, "require_topic", lambda cluster, topic: None)
    monkeypatch.setattr(ClusterClient, "broker_setting", lambda cluster, name: None)
    monkeypatch.setattr(TransactionClient, "listed", lambda client, prefix, *states: [])
    builder = KafkaSink.builder().set_bootstrap_servers("localhost:1").set_record_serializer(RegistryGone())
    sink = builder.set_transactional_id_prefix("p").build()
    assert sink.create_committer() is not None
    context: Any = SimpleNamespace(
        leaves_out_rows=leaves_out_rows,
        delivery_guarantee=DeliveryGuarantee.EXACTLY_ONCE,
        subtask_index=0,
        parallelism=1,
        job_id=OWN,
        sink_id="7" * 32,
        attempt_number=0,
        restored_checkpoint_id=None,
        latest_savepoint_id=None,
        configuration={},
    )
    with pytest.raises(SchemaUnavailableError):
        sink.create_writer(context)
    assert owners == []
