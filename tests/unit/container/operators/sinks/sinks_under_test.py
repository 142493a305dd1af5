"""Sinks whose committed rows can be read back, for tests of exactly-once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from yarrow.common.serialization import Encoder
from yarrow.common.values.error_handling import FAILING, ErrorHandling, ErrorPolicy
from yarrow.container.operators.sinks.sink_writing import SinkWritingOperator
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_policies import BucketAssigner, RollingPolicy
from yarrow.datastream.connectors.file_system import FileCompactor, FileCompactStrategy, StreamFormat
from yarrow.datastream.formats.parquet import ParquetBulkWriters, ParquetColumnarRowInputFormat
from yarrow.testing.transactional_files import CommittedFiles, TransactionalFiles


class Outside(ABC):
    """A folder, the sink that writes there, and what readers of it see."""

    #: The treatment that `on_error` of the sink names.
    errors = FAILING

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def given(self, rows: list[Any]) -> list[Any]:
        """What the sink is given of rows."""
        return rows

    @property
    @abstractmethod
    def sink(self) -> Sink[Any]:
        """The sink."""

    @abstractmethod
    def release(self, operator: SinkWritingOperator) -> None:
        """What the system does with the open files of a killed process."""

    @abstractmethod
    def rows(self) -> list[str]:
        """What is visible."""

    @abstractmethod
    def leftovers(self) -> list[str]:
        """What is there and not visible."""


class Transactions(Outside):
    """The two-phase-commit test sink."""

    @property
    def sink(self) -> Sink[Any]:
        return TransactionalFiles(str(self.folder))

    def release(self, operator: SinkWritingOperator) -> None:
        operator._sink.close()  # type: ignore[attr-defined]

    def rows(self) -> list[str]:
        committed = CommittedFiles(self.folder)
        assert committed.committed_twice() == []
        return committed.rows()

    def leftovers(self) -> list[str]:
        return CommittedFiles(self.folder).leftovers()


class RowFiles(Outside):
    """A FileSink whose files stay open over checkpoints."""

    rolling = RollingPolicy(part_size=60)

    @property
    def sink(self) -> Sink[Any]:
        return (
            FileSink.for_row_format(str(self.folder), Encoder.simple_string_encoder())
            .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
            .with_rolling_policy(self.rolling)
            .build()
        )

    def release(self, operator: SinkWritingOperator) -> None:
        writer: Any = operator._writer
        for part in writer._open.values() if writer is not None else ():
            # A Parquet writer writes its end when Python removes it.
            part._counted.abandon()
            part._stream.close()

    def rows(self) -> list[str]:
        files = sorted(path for path in self.folder.glob("part-*"))
        return [line for path in files for line in path.read_text().splitlines()]

    def leftovers(self) -> list[str]:
        return sorted(path.name for path in self.folder.rglob(".*"))


class CheckpointFiles(RowFiles):
    """A FileSink whose files are closed at checkpoints."""

    rolling = RollingPolicy.on_checkpoint_rolling_policy()


class CompactedFiles(RowFiles):
    """A FileSink that merges the files of two checkpoints, or as soon as there are 50 bytes."""

    @property
    def sink(self) -> Sink[Any]:
        return (
            FileSink.for_row_format(str(self.folder), Encoder.simple_string_encoder())
            .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
            .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
            .enable_compact(
                FileCompactStrategy.builder()
                .enable_compaction_on_checkpoint(2)
                .set_size_threshold(50)
                .build(),
                FileCompactor.concat_file_compactor(),
            )
            .build()
        )

    def rows(self) -> list[str]:
        files = [path for path in self.folder.iterdir() if path.is_file()]
        files.sort(key=lambda path: path.name.removeprefix("compacted-"))
        return [line for path in files for line in path.read_text().splitlines()]


class CompactedOpenFiles(CompactedFiles):
    """A FileSink that merges by records the files that a checkpoint closes; others stay open over checkpoints."""

    @property
    def sink(self) -> Sink[Any]:
        return (
            FileSink.for_row_format(str(self.folder), Encoder.simple_string_encoder())
            .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
            .with_rolling_policy(self.rolling)
            .enable_compact(
                FileCompactStrategy.builder().enable_compaction_on_checkpoint(1).build(),
                FileCompactor.record_wise_file_compactor(StreamFormat.text_line_format()),
            )
            .build()
        )


class ColumnsWithoutBadRows(CheckpointFiles):
    """A FileSink of Parquet that leaves out rows at which it fails."""

    errors = ErrorHandling(policy=ErrorPolicy.SKIP)
    _schema = pa.schema([("text", pa.string())])

    def given(self, rows: list[Any]) -> list[Any]:
        # A number is no text.
        return [given for number, row in enumerate(rows) for given in ((number,), (row,), (number,))]

    @property
    def sink(self) -> Sink[Any]:
        return (
            FileSink.for_bulk_format(str(self.folder), ParquetBulkWriters.for_row_type(self._schema))
            .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
            .build()
        )

    def rows(self) -> list[str]:
        files = sorted(path for path in self.folder.glob("*part-*"))
        return [text for path in files for text in pq.read_table(path)["text"].to_pylist()]


class CompactedColumnsWithoutBadRows(ColumnsWithoutBadRows):
    """The same, whose files are merged by records."""

    @property
    def sink(self) -> Sink[Any]:
        return (
            FileSink.for_bulk_format(str(self.folder), ParquetBulkWriters.for_row_type(self._schema))
            .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
            .enable_compact(
                FileCompactStrategy.builder().enable_compaction_on_checkpoint(2).build(),
                FileCompactor.record_wise_file_compactor(ParquetColumnarRowInputFormat(self._schema)),
            )
            .build()
        )

    def rows(self) -> list[str]:
        files = sorted(self.folder.glob("*part-*"), key=lambda path: path.name.removeprefix("compacted-"))
        return [text for path in files for text in pq.read_table(path)["text"].to_pylist()]


OUTSIDES: list[Callable[[Path], Outside]] = [
    Transactions,
    RowFiles,
    CheckpointFiles,
    CompactedFiles,
    CompactedOpenFiles,
    ColumnsWithoutBadRows,
    CompactedColumnsWithoutBadRows,
]
