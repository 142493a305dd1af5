"""What PyFlink programs meet in a running job: records of keyed streams, metrics by its names, its older file sink."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from tests.cluster.failover.programs import environment
from yarrow.common import Encoder, Types, WatermarkStrategy
from yarrow.datastream import MapFunction, RuntimeContext
from yarrow.datastream.connectors.file_system import BucketAssigner, FileSource, StreamingFileSink
from yarrow.datastream.formats.csv import CsvReaderFormat, CsvSchema
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.metrics import Counter, Meter, MetricGroup
from yarrow.table import DataTypes

pytestmark = pytest.mark.cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(task_executors=1, slots=2, processes=False) as made:
        yield made


class Measured(MapFunction[int, int]):
    """Counts by PyFlink's metrics; its result is what they say."""

    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        assert isinstance(group, MetricGroup)
        self._counter: Counter = group.counter("seen")
        self._meter: Meter = group.meter("rate", time_span_in_seconds=30)

    def map(self, value: int) -> int:
        self._counter.inc()
        self._meter.mark_event(2)
        return self._counter.get_count() + self._meter.get_count()


@pytest.mark.differs("DataStream.execute_and_collect", told="PyFlink gives pairs of key and record")
def test_a_keyed_stream_is_collected_as_its_records(cluster: MiniCluster) -> None:
    env = environment(cluster, parallelism=2)
    pairs = env.from_collection([(1, "a"), (2, "b")], Types.TUPLE([Types.LONG(), Types.STRING()]))
    with pairs.key_by(lambda pair: pair[0]).execute_and_collect() as records:
        assert sorted(records) == [(1, "a"), (2, "b")]


def test_metrics_have_pyflinks_names_and_parameters(cluster: MiniCluster) -> None:
    env = environment(cluster, parallelism=1)
    with env.from_collection([7, 7], Types.LONG()).map(Measured()).execute_and_collect() as counts:
        assert list(counts) == [3, 6]


@pytest.mark.differs("StreamingFileSink.for_row_format", told="under its older name")
def test_a_file_by_data_types_goes_into_a_streaming_file_sink(cluster: MiniCluster, tmp_path: Path) -> None:
    (tmp_path / "prices.csv").write_text("NAME,PRICE\nann,1.005\nbob,2\n")
    schema = (
        CsvSchema.builder()
        .add_string_column("name")
        .add_number_column("price", DataTypes.DECIMAL(5, 2))
        .set_use_header()
        .build()
    )
    source = FileSource.for_record_stream_format(
        CsvReaderFormat.for_schema(schema), str(tmp_path / "prices.csv")
    ).build()
    sink = (
        StreamingFileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .build()
    )
    env = environment(cluster, parallelism=1)
    prices = env.from_source(source, WatermarkStrategy.no_watermarks(), "prices")
    prices.map(lambda row: f"{row.name} {row.price + Decimal(1)}", Types.STRING()).add_sink(sink)
    env.execute("prices")
    (part,) = [path for path in (tmp_path / "out").iterdir() if not path.name.startswith(".")]
    assert part.read_text() == "ann 2.01\nbob 3.00\n"
