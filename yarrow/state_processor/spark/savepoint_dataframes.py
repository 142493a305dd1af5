"""SavepointDataFrames: the states of a savepoint or checkpoint as DataFrames of PySpark.

Owner: the calling thread, which reads only the metadata. Tasks of Spark read the state.
"""

from __future__ import annotations

import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from yarrow.container.batch.spark.requirements import check_packages
from yarrow.runtime.config.options.security import SNAPSHOT_SECRET_FILE
from yarrow.runtime.snapshot.opening import OpenedSnapshot
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.observed_types import ObservedTypes
from yarrow.state_processor.operator_identifier import OperatorIdentifier
from yarrow.state_processor.pickle_trust import PickleTrust
from yarrow.state_processor.shapes import Shape
from yarrow.state_processor.spark.partition_reading import observe_partition
from yarrow.state_processor.spark.savepoint_source import FORMAT, register
from yarrow.state_processor.spark.spark_failures import told_in_short
from yarrow.state_processor.spark.spark_session import check_python, tasks_at_a_time
from yarrow.state_processor.spark.spark_types import spark_schema
from yarrow.state_processor.spark.state_tables import MAP_KEY, StateTable, TableKind, TablePartition

_OBSERVED_DDL: Final = "observed binary"
_OBSERVED: Final = pa.schema([("observed", pa.binary())])


class SavepointDataFrames:
    """Reads one savepoint or checkpoint; the methods have the names of SavepointReader's, and their columns."""

    def __init__(
        self, session: SparkSession, opened: OpenedSnapshot, trusted: bool, options: Mapping[str, str]
    ) -> None:
        self._session = session
        self._opened = opened
        self._trusted = trusted
        self._options = options

    @staticmethod
    def read(
        session: SparkSession,
        path: str,
        *,
        trust_pickle: bool = False,
        configuration: Mapping[str, str] | None = None,
    ) -> SavepointDataFrames:
        """Opens a savepoint, a retained checkpoint or its `_metadata`, on a path that all of Spark's tasks reach.

        Pickles and `configuration` are as in SavepointReader.read. Raises SnapshotError naming the path,
        SparkRequirementError, and StateProcessorError for a session whose tasks run another Python.
        """
        check_packages()
        check_python(session)
        opened, trusted = PickleTrust.of(configuration).open(path, trust_pickle)
        register(session)
        secret = (configuration or {}).get(SNAPSHOT_SECRET_FILE.key, "")
        options = {"path": opened.directory, "trustPickle": str(trust_pickle).lower()}
        return SavepointDataFrames(
            session, opened, trusted, options | ({SNAPSHOT_SECRET_FILE.key: secret} if secret else {})
        )

    def read_keyed_state(
        self,
        operator: OperatorIdentifier | str,
        state: str,
        *,
        columns: Sequence[str] | None = None,
        partitions: int | None = None,
    ) -> DataFrame:
        """A keyed state: `key`, `value` and, with time to live, `access_time`; of these only `columns` are decoded.

        `partitions`: at least so many, without it as many as Spark runs at a time. Where the savepoint does not say
        the types of values, a run of Spark looks at all of them first. Raises StateProcessorError,
        UntrustedPickleError.
        """
        return self._frame(operator, state, TableKind.KEYED, columns, partitions)

    def read_timers(
        self,
        operator: OperatorIdentifier | str,
        *,
        columns: Sequence[str] | None = None,
        partitions: int | None = None,
    ) -> DataFrame:
        """All timers: `key`, `namespace` (a text; null outside of windows), `timestamp` (ms), `domain`."""
        return self._frame(operator, "", TableKind.TIMERS, columns, partitions)

    def read_list_state(self, operator: OperatorIdentifier | str, name: str) -> DataFrame:
        """A list whose elements are dealt out among subtasks: `subtask` that held it, `value`."""
        return self._frame(operator, name, TableKind.LIST, None, None)

    def read_union_state(self, operator: OperatorIdentifier | str, name: str) -> DataFrame:
        """A list of which every subtask gets all at restore: `subtask` that wrote it, `value`."""
        return self._frame(operator, name, TableKind.UNION, None, None)

    def read_broadcast_state(self, operator: OperatorIdentifier | str, name: str) -> DataFrame:
        """A broadcast map: `key`, `value`."""
        return self._frame(operator, name, TableKind.BROADCAST, None, None)

    def _frame(
        self,
        operator: OperatorIdentifier | str,
        name: str,
        kind: TableKind,
        columns: Sequence[str] | None,
        partitions: int | None,
    ) -> DataFrame:
        table = StateTable.find(self._opened, operator, name, {kind}, trusted=self._trusted)
        table.refuse_pickles()
        wanted = partitions or tasks_at_a_time(self._session)
        schema = table.schema(self._shapes(table, columns, wanted))
        if columns is not None:
            missing = [column for column in columns if column not in schema.names]
            if missing or not columns:
                raise StateProcessorError(
                    f"{table.what}: has no columns {missing}, only {schema.names}; name at least one of these"
                )
            schema = pa.schema([schema.field(column) for column in columns])
        which = {"timers": "true"} if kind is TableKind.TIMERS else {"state": name, "table": str(kind)}
        options = {
            **self._options,
            **which,
            "operator": str(table.operator.operator_id),
            "partitions": str(wanted),
        }
        return self._session.read.format(FORMAT).options(**options).schema(spark_schema(schema)).load()

    def _shapes(self, table: StateTable, columns: Sequence[str] | None, wanted: int) -> dict[str, Shape]:
        """The shape of each part; a run of Spark finds those that the metadata do not say and that are wanted."""
        parts = table.parts()
        unknown = {part for part, shape in parts.items() if shape is None}
        if columns is not None:
            # Of what is not read the type does not matter.
            unknown = {part for part in unknown if _column_of(part) in columns or "access_time" in columns}
        found: dict[str, Shape] = {part: Shape(pa.null()) for part in parts}
        found |= {part: shape for part, shape in parts.items() if shape is not None}
        if unknown:
            seen = self._observed(table, unknown, wanted)
            for part in unknown:
                observed = seen.get(part, ObservedTypes())
                found[part] = observed.map_key_shape() if part == MAP_KEY else observed.shape()
        return found

    def _observed(self, table: StateTable, parts: Collection[str], wanted: int) -> dict[str, ObservedTypes]:
        partitions = tuple(table.partitions(wanted))
        numbers = self._session.range(0, len(partitions), 1, len(partitions))
        try:
            rows = numbers.mapInArrow(_Observing(partitions, tuple(sorted(parts))), _OBSERVED_DDL).collect()
        except Exception as error:
            # Without its cause: the first thing that a user reads would be a trace of Java.
            raise StateProcessorError(f"{table.what}: not read: {told_in_short(error)}") from None
        merged: dict[str, ObservedTypes] = {}
        for row in rows:
            # From Spark's own tasks, which run this program's functions anyway.
            found: dict[str, ObservedTypes] = pickle.loads(bytes(row["observed"]))
            for part, seen in found.items():
                if part in merged:
                    merged[part].merge(seen)
                else:
                    merged[part] = seen
        return merged


def _column_of(part: str) -> str:
    return "value" if part == MAP_KEY else part


@dataclass(frozen=True, slots=True)
class _Observing:
    """Looks at the values of a partition; its input is the number of the partition."""

    partitions: tuple[TablePartition, ...]
    parts: tuple[str, ...]

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each partition."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                seen = observe_partition(self.partitions[number], self.parts)
                yield pa.RecordBatch.from_arrays(
                    [pa.array([pickle.dumps(seen)], pa.binary())], schema=_OBSERVED
                )
