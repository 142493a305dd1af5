"""Whether Spark SQL can read the Parquet files of a source exactly as the source's own readers do.

Owner: the driver's thread that prepares a run. It looks at the ends of the files alone. Where it finds anything else
than the source has declared, the source's readers run, which know how to name it. Must not know Spark.
"""

from __future__ import annotations

import json
import pickle
import posixpath
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from yarrow.runtime.common.paths import is_hidden, scheme_of
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.graph.batch.batch_plan import SqlAggregation
from yarrow.runtime.graph.operator_spec import AggregateKind

_MOST: Final = 2**63 - 1
#: What stands in paths that Spark would take for patterns.
_PATTERN: Final = frozenset("*?[]{}\\")
_CODECS: Final = frozenset(("UNCOMPRESSED", "SNAPPY", "GZIP", "ZSTD"))
_ENCODINGS: Final = frozenset(
    (
        "PLAIN",
        "RLE",
        "BIT_PACKED",
        "PLAIN_DICTIONARY",
        "RLE_DICTIONARY",
        "DELTA_BINARY_PACKED",
        "DELTA_LENGTH_BYTE_ARRAY",
        "DELTA_BYTE_ARRAY",
    )
)
#: Written by versions of Spark that count days before 1582 otherwise.
_OTHER_CALENDAR: Final = b"org.apache.spark.legacyDateTime"
_SPARK_VERSION: Final = b"org.apache.spark.version"


class ScannedPart(Protocol):
    """A split of a file."""

    path: str
    offset: int
    length: int
    file_size: int


class ScanFiles(NamedTuple):
    """The files of one source, and why Spark SQL cannot read them exactly; "" = it can."""

    paths: tuple[str, ...]
    why_not: str


def files_of(
    sql: SqlAggregation, splits: Iterable[Sequence[bytes]], why_unread: Callable[[str], str]
) -> ScanFiles:
    """Looks at the files of a source, whose encoded splits these are.

    `why_unread` says why Java cannot read a file of HDFS; "" = it can. Java may know other addresses than Python does,
    or prove itself otherwise.
    """
    parts: dict[str, list[ScannedPart]] = defaultdict(list)
    for of_subtask in splits:
        for split in of_subtask:
            part: ScannedPart = pickle.loads(split)
            parts[part.path].append(part)
    paths = tuple(sorted(parts))
    if not paths:
        return ScanFiles((), "there is no file")
    for path in paths:
        why = _why_not_whole(path, parts[path])
        if why:
            return ScanFiles(paths, why)
    return ScanFiles(paths, _Check(sql).why_not(paths) or _why_not_by_java(paths, why_unread))


def _why_not_by_java(paths: Iterable[str], why_unread: Callable[[str], str]) -> str:
    """Tries one file of each HDFS."""
    first: dict[str, str] = {}
    for path in paths:
        if scheme_of(path) == "hdfs":
            first.setdefault(urlsplit(path).netloc, path)
    reasons = ((path, why_unread(path)) for path in first.values())
    return next((f"Java cannot read {path}: {why}" for path, why in reasons if why), "")


def _why_not_whole(path: str, parts: Sequence[ScannedPart]) -> str:
    if scheme_of(path) not in ("file", "hdfs"):
        return f"{path} is neither local nor on HDFS"
    if _PATTERN & set(path):
        return f"Spark takes the path {path} for a pattern"
    name = posixpath.basename(path)
    if is_hidden(name) or name.endswith("._COPYING_"):
        return f"Spark leaves {path} out"
    if sum(part.length for part in parts) != parts[0].file_size:
        return f"a part of {path} is read, not the whole file"
    return ""


class _Check:
    """Compares files with what the source has declared."""

    def __init__(self, sql: SqlAggregation) -> None:
        self._schema: pa.Schema = pa.ipc.read_schema(pa.py_buffer(sql.scan.schema))
        aggregates = sql.aggregates.aggregates
        self._columns = sql.columns
        #: For each column that is summed, a bound of the magnitude of any sum of its values.
        self._bounds = {
            each.column: 0
            for each in aggregates
            if each.column is not None and each.kind in (AggregateKind.SUM, AggregateKind.MEAN)
        }

    def why_not(self, paths: Iterable[str]) -> str:
        """Why the files cannot be read by Spark SQL; "" = they can."""
        for path in paths:
            try:
                with file_system_for(path).open(path) as stream:
                    why = self._file(pq.ParquetFile(stream))
            except (OSError, pa.ArrowException) as error:
                return f"{path} cannot be opened: {error}"
            if why:
                return f"{path}: {why}"
        for column, bound in self._bounds.items():
            if bound > _MOST:
                return f"a sum of column '{column}' may exceed 64 bits"
        return ""

    def _file(self, file: pq.ParquetFile) -> str:
        found = file.schema_arrow
        for field in self._schema:
            at = found.get_all_field_indices(field.name)
            if len(at) != 1:
                return f"it has no single column '{field.name}'"
            kind = found.field(at[0]).type
            if kind != field.type:
                return f"column '{field.name}' is of type {kind}, and {field.type} is declared"
        leaves = {file.schema.column(at).path: at for at in range(len(file.schema))}
        for name in self._columns:
            why = self._column(file, name, leaves.get(name))
            if why:
                return why
        return ""

    def _column(self, file: pq.ParquetFile, name: str, leaf: int | None) -> str:
        if leaf is None or "." in name:
            return f"column '{name}' is nested"
        kind = self._schema.field(name).type
        if pa.types.is_timestamp(kind) and not _is_stored_as(file.schema.column(leaf).logical_type, kind):
            return f"column '{name}' is not stored as {kind}"
        if pa.types.is_temporal(kind) and _has_other_calendar(file.metadata.metadata or {}):
            return f"column '{name}' was written by a version of Spark with another calendar"
        for number in range(file.metadata.num_row_groups):
            chunk = file.metadata.row_group(number).column(leaf)
            if chunk.compression not in _CODECS:
                return f"column '{name}' is compressed by {chunk.compression}"
            others = set(chunk.encodings) - _ENCODINGS
            if others:
                return f"column '{name}' is encoded by {', '.join(sorted(others))}"
            if name in self._bounds:
                self._bounds[name] += _bound(chunk, kind)
        return ""


def _is_stored_as(logical_type: Any, kind: pa.DataType) -> bool:
    """Whether a file has timestamps of microseconds, in UTC if the column has a zone."""
    told: Mapping[str, Any] = json.loads(logical_type.to_json())
    return (
        told.get("Type") == "Timestamp"
        and told.get("timeUnit") == "microseconds"
        and told.get("isAdjustedToUTC") == (kind.tz is not None)
    )


def _has_other_calendar(metadata: Mapping[bytes, bytes]) -> bool:
    version = metadata.get(_SPARK_VERSION)
    return _OTHER_CALENDAR in metadata or (version is not None and version.startswith((b"1.", b"2.")))


def _bound(chunk: pq.ColumnChunkMetaData, kind: pa.DataType) -> int:
    """A bound of the magnitude of any sum of a row group's values."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    statistics = chunk.statistics
    number = int(chunk.num_values)
    if statistics is not None and statistics.has_null_count:
        number -= int(statistics.null_count)
    if pa.types.is_boolean(kind):
        return number
    if statistics is not None and statistics.has_min_max:
        return number * max(abs(int(statistics.min)), abs(int(statistics.max)))
    return number << int(kind.bit_width)
