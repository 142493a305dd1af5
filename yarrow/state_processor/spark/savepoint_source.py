"""SavepointSource: the data source `yarrow-savepoint` of PySpark.

Owner: Spark, in processes of Python that it starts: one that plans reads the metadata, those of tasks their files.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Final
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from yarrow.runtime.config.options.security import SNAPSHOT_SECRET_FILE
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.pickle_trust import PickleTrust
from yarrow.state_processor.shapes import Shape
from yarrow.state_processor.spark.partition_reading import read_partition
from yarrow.state_processor.spark.spark_types import arrow_schema, spark_schema
from yarrow.state_processor.spark.state_tables import StateTable, TableKind, TablePartition

FORMAT: Final = "yarrow-savepoint"
_OPTIONS: Final = "path, operator, state or timers, table, partitions, trustPickle"


class SavepointSource(DataSource):  # type: ignore[misc]
    """One table of a savepoint or retained checkpoint.

    Options are `path`, `operator` (its uid or id), and `state` (a name) or `timers` = true. `table` (keyed, list,
    union, broadcast) decides where several states have one name. The others are `partitions`, `trustPickle` and
    `security.snapshot.secret-file`. A schema with fewer columns has the others not decoded.
    """

    #: Of DataSource: as the program gave them, by names in any case.
    options: MutableMapping[str, str]

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return FORMAT

    def schema(self) -> StructType:
        """The columns, as far as the metadata say them. Raises StateProcessorError naming those that they do not."""
        table = self._table()
        parts = table.parts()
        unknown = sorted(part for part, shape in parts.items() if shape is None)
        if unknown:
            raise StateProcessorError(
                f"{table.what}: only its values say the types of {', '.join(unknown)}. Name them by schema(...), or"
                " use SavepointDataFrames, which looks at all values first."
            )
        known: dict[str, Shape] = {part: shape for part, shape in parts.items() if shape is not None}
        return spark_schema(table.schema(known))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Reads the columns of a schema. Raises UntrustedPickleError before any task starts."""
        try:
            wanted = int(self.options.get("partitions", "1"))
        except ValueError:
            raise StateProcessorError(
                f"expected a whole number as the option 'partitions', not {self.options['partitions']!r}"
            ) from None
        table = self._table()
        table.refuse_pickles()
        return _Reader(table, schema, wanted)

    def _table(self) -> StateTable:
        path, operator, state = (self._option(name) for name in ("path", "operator", "state"))
        timers = _is_true(self._option("timers"))
        if not path or not operator or bool(state) == timers:
            raise StateProcessorError(
                f"format '{FORMAT}' reads a state, or the timers, of one operator; its options are {_OPTIONS}, and"
                f" these were given: {', '.join(sorted(self.options)) or 'none'}"
            )
        secret = self._option(SNAPSHOT_SECRET_FILE.key)
        trust = PickleTrust.of({SNAPSHOT_SECRET_FILE.key: secret} if secret else None)
        opened, trusted = trust.open(path, _is_true(self._option("trustPickle")))
        return StateTable.find(opened, operator, state, self._kinds(timers), trusted=trusted)

    def _kinds(self, timers: bool) -> set[TableKind]:
        if timers:
            return {TableKind.TIMERS}
        named = self._option("table").lower()
        kinds = {str(kind): kind for kind in TableKind if kind is not TableKind.TIMERS}
        if not named:
            return set(kinds.values())
        if named not in kinds:
            raise StateProcessorError(f"the option 'table' is one of {', '.join(kinds)}, not '{named}'")
        return {kinds[named]}

    def _option(self, name: str) -> str:
        return self.options.get(name) or ""


def _is_true(text: str) -> bool:
    return text.strip().lower() == "true"


class _Partition(InputPartition):  # type: ignore[misc]
    """A partition, which travels to its task."""

    value: TablePartition


class _Reader(DataSourceReader):  # type: ignore[misc]
    """Reads the columns of a table; it travels to the tasks."""

    def __init__(self, table: StateTable, schema: StructType, wanted: int) -> None:
        self._wanted = wanted
        self._schema = arrow_schema(schema)
        self._partitions: Sequence[TablePartition] = table.partitions(wanted)

    def partitions(self) -> list[InputPartition]:
        """See DataSourceReader."""
        return [_Partition(partition) for partition in self._partitions]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """See DataSourceReader."""
        return read_partition(partition.value, self._schema)

    def __getstate__(self) -> dict[str, object]:
        # Tasks get their own partition alone, not the handles of all.
        return {"_wanted": self._wanted, "_schema": self._schema, "_partitions": ()}


_registered: WeakSet[SparkSession] = WeakSet()


def register(session: SparkSession) -> None:
    """Makes the format `yarrow-savepoint` known to a session; may be repeated."""
    if session not in _registered:
        session.dataSource.register(SavepointSource)
        _registered.add(session)
