"""How a FileSink lays out its files: which bucket, which names, when the next file begins.

Owner: the client makes these values, the task's thread asks them. Must not touch files.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from yarrow.common.serialization import BulkWriterFactory, Encoder
from yarrow.datastream.connectors.file_compaction import FileCompactor, FileCompactStrategy

_PATTERN_LETTERS = {
    "yyyy": "%Y",
    "yy": "%y",
    "MM": "%m",
    "dd": "%d",
    "HH": "%H",
    "mm": "%M",
    "ss": "%S",
}


@dataclass(frozen=True, slots=True)
class BucketContext:
    """The task as a bucket assigner sees it, besides the record."""

    current_processing_time: int
    timestamp: int | None


class BucketAssigner(ABC):
    """Names the folder, below the base path, that a record goes to."""

    #: True when the bucket does not depend on the record: then it is asked once a slice.
    ignores_element: bool = False

    @abstractmethod
    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        """The folder, relative to the base path; empty = the base path itself."""

    @staticmethod
    def base_path_bucket_assigner() -> BucketAssigner:
        """Return an assigner that puts every record into the base path."""
        return _BasePathBuckets()

    @staticmethod
    def date_time_bucket_assigner(
        format_str: str = "yyyy-MM-dd--HH", timezone_id: str | None = None
    ) -> BucketAssigner:
        """Return an assigner with a folder for each hour of processing time, or as the pattern says.

        The zone is the system's unless one is given. Text between single quotes stands as it is: "'day='yyyy-MM-dd".

        Raises ValueError for an unknown zone, and for a quote that is not closed. Outside quotes it is raised for other
        letters than y, M, d, H, m and s.
        """
        return _DateTimeBuckets(format_str, timezone_id)


class _BasePathBuckets(BucketAssigner):
    ignores_element = True

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        return ""


class _DateTimeBuckets(BucketAssigner):
    ignores_element = True

    def __init__(self, pattern: str, timezone_id: str | None) -> None:
        self._format = re.sub(
            r"'((?:[^']|'')*)'|([A-Za-z])\2*|[%']", lambda found: self._directive(found, pattern), pattern
        )
        try:
            self._zone = None if timezone_id is None else ZoneInfo(timezone_id)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(
                f"date_time_bucket_assigner: {timezone_id!r} is no time zone known here"
            ) from error

    def get_bucket_id(self, element: Any, context: BucketContext) -> str:
        moment = datetime.fromtimestamp(context.current_processing_time / 1000, self._zone)
        return moment.strftime(self._format)

    def _directive(self, found: re.Match[str], pattern: str) -> str:
        letters, quoted = found.group(), found[1]
        if letters == "%":
            return "%%"
        if quoted is not None:
            # Two quotes are one quote, inside quotes and outside.
            return "'" if not quoted else quoted.replace("''", "'").replace("%", "%%")
        if letters == "'":
            raise ValueError(
                f"date_time_bucket_assigner: a quote in {pattern!r} is not closed; close it by another '"
            )
        if letters not in _PATTERN_LETTERS:
            raise ValueError(
                f"date_time_bucket_assigner: {letters!r} in {pattern!r} is not known; use "
                f"{', '.join(_PATTERN_LETTERS)}"
            )
        return _PATTERN_LETTERS[letters]


@dataclass(frozen=True, slots=True)
class RollingPolicy:
    """The rules by which a part file is closed and the next one begun; None = never for that reason. Times in ms.

    Files are closed at the time the policy says, rows or no rows. Bulk formats roll at every checkpoint, and so does
    everything outside of local file systems.
    """

    part_size: int | None = None
    rollover_interval: int | None = None
    inactivity_interval: int | None = None
    on_checkpoint: bool = False

    @staticmethod
    def default_rolling_policy(
        part_size: int = 134217728, rollover_interval: int = 60000, inactivity_interval: int = 60000
    ) -> DefaultRollingPolicy:
        """By size in bytes, by age and by time without a record. Raises ValueError unless all are above 0."""
        if min(part_size, rollover_interval, inactivity_interval) < 1:
            raise ValueError("default_rolling_policy: size and intervals must be above 0")
        return DefaultRollingPolicy(part_size, rollover_interval, inactivity_interval)

    @staticmethod
    def on_checkpoint_rolling_policy() -> OnCheckpointRollingPolicy:
        """At every checkpoint and only then."""
        return OnCheckpointRollingPolicy(on_checkpoint=True)


class DefaultRollingPolicy(RollingPolicy):
    """By size, by age and by time without a record; made by `RollingPolicy.default_rolling_policy`."""

    __slots__ = ()


class OnCheckpointRollingPolicy(RollingPolicy):
    """At every checkpoint and only then; made by `RollingPolicy.on_checkpoint_rolling_policy`."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class OutputFileConfig:
    """The beginning and the end of the names of part files."""

    part_prefix: str = "part"
    part_suffix: str = ""

    class OutputFileConfigBuilder:
        """Collects prefix and suffix."""

        def __init__(self) -> None:
            self._config = OutputFileConfig()

        def with_part_prefix(self, prefix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Let names begin with this; raises ValueError where it would hide the file."""
            if prefix.startswith((".", "_")) or "/" in prefix:
                raise ValueError(f"a part prefix must not begin with . or _ nor hold a /: {prefix!r}")
            self._config = replace(self._config, part_prefix=prefix)
            return self

        def with_part_suffix(self, suffix: str) -> OutputFileConfig.OutputFileConfigBuilder:
            """Let names end with this, for example `.csv`."""
            if "/" in suffix:
                raise ValueError(f"a part suffix must not hold a /: {suffix!r}")
            self._config = replace(self._config, part_suffix=suffix)
            return self

        def build(self) -> OutputFileConfig:
            """The configuration."""
            return self._config

    @staticmethod
    def builder() -> OutputFileConfig.OutputFileConfigBuilder:
        """A builder with `part` and no suffix."""
        return OutputFileConfig.OutputFileConfigBuilder()

    def get_part_prefix(self) -> str:
        """The prefix."""
        return self.part_prefix

    def get_part_suffix(self) -> str:
        """The suffix."""
        return self.part_suffix


@dataclass(frozen=True, slots=True)
class FileSinkSettings:
    """The settings that a builder has collected: an encoder or a bulk factory, and the policies."""

    base_path: str
    encoder: Encoder[Any] | None
    bulk_factory: BulkWriterFactory[Any] | None
    buckets: BucketAssigner = field(default_factory=BucketAssigner.date_time_bucket_assigner)
    rolling: RollingPolicy = field(default_factory=RollingPolicy.default_rolling_policy)
    files: OutputFileConfig = field(default_factory=OutputFileConfig)
    #: When and how files are merged; None = they are not.
    compaction: tuple[FileCompactStrategy, FileCompactor] | None = None
