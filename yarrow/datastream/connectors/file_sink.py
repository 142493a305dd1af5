"""FileSink: records into files of buckets, visible only when they are whole and committed.

Owner: the client builds it; the writer and the committer it makes belong to their threads (see
file_sink_writer, which the client does not load).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

from yarrow.common.serialization import BulkWriterFactory, Encoder
from yarrow.datastream.connectors.base import Committer, DeliveryGuarantee, KeptBy, Sink, SinkWriterContext
from yarrow.datastream.connectors.file_compaction import FileCompactor, FileCompactStrategy
from yarrow.datastream.connectors.file_sink_policies import (
    BucketAssigner,
    FileSinkSettings,
    OutputFileConfig,
    RollingPolicy,
)
from yarrow.runtime.common.errors import FileSystemError, InvalidProgramError
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.common.paths import scheme_of, with_default_scheme
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.registry import file_system_for

if TYPE_CHECKING:
    from yarrow.datastream.connectors.file_sink_writer import FileSinkWriter


class FileSink(Sink[Any]):
    """Writes records to part files in the buckets below a base path; made by a builder.

    Without another assigner a bucket is an hour of processing time. While a file is written it lies hidden in
    `.staging-*` below the base path. It appears whole and under its name, once, when a checkpoint that covers it is
    complete, and at the end of bounded input. With checkpoints each record is in the visible files exactly once.
    """

    def __init__(self, settings: FileSinkSettings) -> None:
        self._settings = settings
        self.accepts_columns = bool(getattr(settings.bulk_factory, "accepts_columns", False))
        self.takes_added_columns = settings.encoder is not None and settings.encoder.takes_added_columns
        # An encoder writes each row at once.
        self.counts_bytes = settings.bulk_factory is None or settings.bulk_factory.counts_bytes
        # An encoder gets one row.
        self.tells_refused_rows = settings.bulk_factory is None or settings.bulk_factory.tells_refused_rows
        self.blocking = scheme_of(settings.base_path) != "file" or settings.compaction is not None

    @property
    def base_path(self) -> str:
        """The folder of the buckets."""
        return self._settings.base_path

    def guarantees(self) -> Mapping[DeliveryGuarantee, KeptBy]:
        """Hidden files are the staged rows, and the final name of a file is the marker."""
        return {DeliveryGuarantee.EXACTLY_ONCE: KeptBy.STAGED_ROWS}

    def with_default_scheme(self, default: str) -> Self:
        path = with_default_scheme(self._settings.base_path, default)
        return type(self)(replace(self._settings, base_path=path))

    class BaseBuilder:
        """Collects the settings of a FileSink."""

        def __init__(self, settings: FileSinkSettings) -> None:
            if not isinstance(settings.base_path, str) or not settings.base_path:
                raise TypeError(
                    f"FileSink: the base path must be a non-empty str, not {settings.base_path!r}"
                )
            self._settings = settings

        def with_bucket_assigner(self, bucket_assigner: BucketAssigner) -> Self:
            """Set the assigner, which names the folder of a record."""
            self._settings = replace(self._settings, buckets=bucket_assigner)
            return self

        def with_rolling_policy(self, rolling_policy: RollingPolicy) -> Self:
            """Sets when files are closed.

            Raises ValueError for a bulk format with another policy than on checkpoint.
            """
            if self._settings.bulk_factory is not None and not rolling_policy.on_checkpoint:
                raise ValueError(
                    "FileSink: bulk formats roll at checkpoints; use on_checkpoint_rolling_policy()"
                )
            self._settings = replace(self._settings, rolling=rolling_policy)
            return self

        def with_output_file_config(self, output_file_config: OutputFileConfig) -> Self:
            """Set how part files are named."""
            self._settings = replace(self._settings, files=output_file_config)
            return self

        def with_bucket_check_interval(self, interval: int) -> Self:
            """Accepted (ms, above 0): files are closed at the time their policy says, not at the next check."""
            if interval < 1:
                raise ValueError(f"with_bucket_check_interval: the interval must be above 0, not {interval}")
            return self

        def enable_compact(self, strategy: FileCompactStrategy, compactor: FileCompactor) -> Self:
            """Merges the files of a bucket before they become visible, as the strategy says.

            Raises TypeError for other arguments, ValueError for a strategy that never merges, and InvalidProgramError
            where the format's files cannot be joined by their bytes.
            """
            if not isinstance(strategy, FileCompactStrategy) or not isinstance(compactor, FileCompactor):
                raise TypeError(
                    "FileSink.enable_compact: a FileCompactStrategy and a FileCompactor are expected, not"
                    f" {strategy!r} and {compactor!r}"
                )
            FileCompactStrategy.require_trigger(strategy)
            factory = self._settings.bulk_factory
            if compactor.concatenates and factory is not None and not factory.can_be_concatenated:
                raise InvalidProgramError(
                    f"FileSink.enable_compact: files of {type(factory).__name__} cannot be joined by their bytes;"
                    " use FileCompactor.record_wise_file_compactor with the format that reads them"
                )
            self._settings = replace(self._settings, compaction=(strategy, compactor))
            return self

        def disable_compact(self) -> Self:
            """Merges no files; those that a restored state names become visible one by one."""
            self._settings = replace(self._settings, compaction=None)
            return self

        def build(self) -> FileSink:
            """The sink."""
            return FileSink(self._settings)

    class RowFormatBuilder(BaseBuilder):
        """A builder of a sink that writes record by record."""

    class BulkFormatBuilder(BaseBuilder):
        """A builder of a sink whose format writes many records at once."""

    @staticmethod
    def for_row_format(base_path: str, encoder: Encoder[Any]) -> FileSink.RowFormatBuilder:
        """A builder of a sink that writes record by record. Raises TypeError for anything but an Encoder."""
        if not isinstance(encoder, Encoder):
            raise TypeError(f"FileSink.for_row_format: an Encoder is expected, not {encoder!r}")
        return FileSink.RowFormatBuilder(FileSinkSettings(base_path, encoder, None))

    @staticmethod
    def for_bulk_format(base_path: str, writer_factory: BulkWriterFactory[Any]) -> FileSink.BulkFormatBuilder:
        """A builder of a sink whose format sees many records at once; files roll at checkpoints.

        Raises TypeError for anything but a BulkWriterFactory.
        """
        if not isinstance(writer_factory, BulkWriterFactory):
            raise TypeError(
                "FileSink.for_bulk_format: a BulkWriterFactory is expected, as ParquetBulkWriters.for_row_type makes"
                f" one, not {writer_factory!r}"
            )
        rolling = RollingPolicy.on_checkpoint_rolling_policy()
        return FileSink.BulkFormatBuilder(FileSinkSettings(base_path, None, writer_factory, rolling=rolling))

    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> FileSinkWriter:
        """A writer for one subtask."""
        from yarrow.datastream.connectors.file_sink_writer import FileSinkWriter

        return FileSinkWriter(self._settings, context, restored, RandomIdFactory())

    def create_committer(self) -> Committer:
        """Return the committer, which renames whole files."""
        from yarrow.datastream.connectors.file_sink_writer import FileCommitter

        return FileCommitter()

    def validate(self) -> None:
        """Raises InvalidProgramError when the base path is a file or its file system cannot be used."""
        path = self._settings.base_path
        try:
            file_system = file_system_for(path)
            if exists(file_system, path) and not file_system.status(path).is_dir:
                raise InvalidProgramError(f"FileSink: {path} is a file; give the folder that files go into")
        except (OSError, FileSystemError) as error:
            raise InvalidProgramError(f"FileSink: {path} cannot be used: {error}") from error
