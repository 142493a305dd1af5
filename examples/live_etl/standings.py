"""The second job: it reads the table of the first one, and adds up the minutes that each country has there now.

    yarrow run examples/live_etl/standings.py localhost:9092

The table is a changelog: a record replaces the row of its key, and a record without a value removes the row.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator

import tables

from yarrow.common import JobClient, Row, TypeInformation, Types, WatermarkStrategy
from yarrow.datastream import (
    KeyedProcessFunction,
    MapStateDescriptor,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from yarrow.datastream.connectors.kafka import (
    ConsumerRecord,
    KafkaOffsetsInitializer,
    KafkaRecordDeserializationSchema,
    KafkaSource,
)

GROUP = "standings"


class Changes(KafkaRecordDeserializationSchema[Row]):
    """The rows of the table; a removed one has no numbers."""

    def deserialize(self, record: ConsumerRecord) -> Iterable[Row]:
        country, minute = (record.key or b"").decode().split(" ")
        if record.value is None:
            return [tables.removed(country, minute)]
        return [Row(country=country, minute=minute, **json.loads(record.value))]

    def get_produced_type(self) -> TypeInformation:
        return tables.MINUTE


class Totals(KeyedProcessFunction[str, Row, Row]):
    """Keeps the rows of a country, and emits their totals at each change."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._minutes = runtime_context.get_map_state(
            MapStateDescriptor("minutes", Types.STRING(), tables.MINUTE)
        )

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        if value.paid is None:
            self._minutes.remove(value.minute)
        else:
            self._minutes.put(value.minute, value)
        kept = list(self._minutes.values())
        yield Row(
            country=value.country,
            paid=sum(row.paid for row in kept),
            unpaid=sum(row.unpaid for row in kept),
            cents=sum(row.cents for row in kept),
            flagged=sum(row.flagged for row in kept),
        )


def standings(servers: str) -> StreamExecutionEnvironment:
    """Return the program."""
    env = tables.program(parallelism=1)
    builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(tables.TURNOVER)
    builder.set_group_id(GROUP).set_starting_offsets(KafkaOffsetsInitializer.earliest())
    source: KafkaSource[Row] = builder.set_deserializer(Changes()).build()
    changes = env.from_source(source, WatermarkStrategy.no_watermarks(), "changes").uid("changes")
    totals = changes.key_by(lambda row: row.country, Types.STRING()).process(Totals(), tables.STANDING)
    sink = tables.upserts(servers, tables.STANDINGS, tables.StandingRecord())
    totals.uid("totals").sink_to(sink).uid("standings")
    return env


def start(servers: str) -> JobClient:
    """Start the job and return at once."""
    return standings(servers).execute_async("standings")


if __name__ == "__main__":
    standings(sys.argv[1]).execute("standings")
