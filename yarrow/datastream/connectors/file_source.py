"""FileSource: records from files and folders, once or for as long as new files appear.

Owner: the engine for the enumerator, the task's thread for the reader; the client for `validate`. The
enumerator lists files and cuts them into splits, the format reads a split. A file is read as long as it was
when it was found.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from yarrow.common.time import Duration
from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.datastream.connectors.base import (
    Boundedness,
    Source,
    SourceReaderContext,
    SourceRecords,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.connectors.file_format import (
    BulkFormat,
    FileFormat,
    FileReader,
    FileSourceSplit,
    RecordParser,
)
from yarrow.datastream.connectors.split_reading import OneByOneReader, OnRequestEnumerator
from yarrow.datastream.connectors.stream_format import StreamFormat
from yarrow.runtime.common.errors import FileSystemError, InvalidProgramError, YarrowError
from yarrow.runtime.common.paths import scheme_of, with_default_scheme
from yarrow.runtime.fs.file_search import find_files
from yarrow.runtime.fs.file_system import FileStatus

if TYPE_CHECKING:
    import pyarrow as pa

    from yarrow.common.typeinfo import TypeInformation
    from yarrow.common.values.conditions import WantedColumns

T = TypeVar("T")

#: Bytes of a split, unless the enumerator says otherwise.
SPLIT_BYTES = 32 << 20


class FileSourceError(YarrowError):
    """A file cannot be read: gone since it was listed, shorter, or not accessible."""


class FileEnumeratorProvider(ABC):
    """Cuts files into splits."""

    @abstractmethod
    def splits_of(self, file: FileStatus, may_split: bool) -> Iterable[FileSourceSplit]:
        """The splits of one file, in order; `may_split` is False when its format needs it whole."""

    @staticmethod
    def default_splittable_file_enumerator(split_bytes: int = SPLIT_BYTES) -> FileEnumeratorProvider:
        """Several splits a file where its format allows it, each of `split_bytes` or somewhat more."""
        return _BlockSplits(split_bytes)

    @staticmethod
    def default_non_splittable_file_enumerator() -> FileEnumeratorProvider:
        """Return a provider that makes one split of each file."""
        return _BlockSplits(None)


class _BlockSplits(FileEnumeratorProvider):
    def __init__(self, split_bytes: int | None) -> None:
        if split_bytes is not None and split_bytes < 1:
            raise ValueError(f"split_bytes must be at least 1, not {split_bytes}")
        self._split_bytes = split_bytes

    def splits_of(self, file: FileStatus, may_split: bool) -> Iterable[FileSourceSplit]:
        parts = 1
        if may_split and self._split_bytes is not None:
            parts = max(1, file.size // self._split_bytes)
        bounds = [file.size * part // parts for part in range(parts + 1)]
        for start, end in pairwise(bounds):
            yield FileSourceSplit(f"{file.path}:{start}", file.path, start, end - start, file.size)


class FileSplitAssignerProvider:
    """Assigns splits to readers: the reader that asks gets the next split in order of path and offset."""

    @staticmethod
    def locality_aware_split_assigner() -> FileSplitAssignerProvider:
        """Return the assigner by path and offset: local files and WebHDFS name no host to be near to."""
        return FileSplitAssignerProvider()


@dataclass(frozen=True, slots=True)
class FileEnumeratorState:
    """The enumerator's part of a checkpoint: splits not assigned, and the files seen, which are not read again."""

    unassigned: tuple[FileSourceSplit, ...]
    seen: frozenset[str]


class FileSource(Source[T, FileSourceSplit], Generic[T]):
    """Records of the files at `paths`; made by a builder.

    A path is a file, a folder (with everything below it) or a pattern of `*?[`. Names that begin with a dot
    or an underscore are left out. Local paths, `file://` and `hdfs://` URLs.
    """

    def __init__(
        self,
        file_format: FileFormat[T],
        paths: Sequence[str],
        enumerator: FileEnumeratorProvider,
        discovery_seconds: float | None = None,
    ) -> None:
        self._format = file_format
        self._paths = tuple(paths)
        self._enumerator = enumerator
        self._discovery_seconds = discovery_seconds
        self.blocking = any(scheme_of(path) != "file" for path in self._paths)
        self.errors = file_format.errors
        self.makes_new_rows = file_format.makes_new_rows
        self.counts_bytes = file_format.counts_bytes
        self.makes_named_rows = file_format.makes_named_rows

    def with_default_scheme(self, default: str) -> FileSource[T]:
        paths = [with_default_scheme(path, default) for path in self._paths]
        return FileSource(self._format, paths, self._enumerator, self._discovery_seconds)

    @staticmethod
    def for_record_stream_format(stream_format: StreamFormat[T], *paths: str) -> FileSourceBuilder[T]:
        """A builder of a source that reads record by record."""
        return FileSourceBuilder(stream_format, paths)

    @staticmethod
    def for_bulk_file_format(bulk_format: BulkFormat[T], *paths: str) -> FileSourceBuilder[T]:
        """A builder of a source that reads many records at a time."""
        return FileSourceBuilder(bulk_format, paths)

    def history(self) -> FileSource[T]:
        """The same files, looked for once. The source goes on with files that it has not seen, and in open ones."""
        if self._discovery_seconds is None:
            return self
        return FileSource(self._format, self._paths, self._enumerator)

    @property
    def boundedness(self) -> Boundedness:
        if self._discovery_seconds is None:
            return Boundedness.BOUNDED
        return Boundedness.CONTINUOUS_UNBOUNDED

    def validate(self) -> None:
        """Raises InvalidProgramError naming a path that is missing, or a bounded source without any file."""
        found = False
        for path in self._paths:
            try:
                found = bool(find_files(path)) or found
            except FileNotFoundError:
                raise InvalidProgramError(
                    f"FileSource: input file or folder {path} does not exist; check the path (relative paths "
                    "begin at the folder where the program was started)"
                ) from None
            except (OSError, FileSystemError) as error:
                raise InvalidProgramError(f"FileSource: input {path} cannot be read: {error}") from error
        if not found and self._discovery_seconds is None:
            raise InvalidProgramError(
                f"FileSource: no file at {', '.join(self._paths)}; names that begin with . or _ are left out"
            )

    def create_enumerator(
        self, context: SplitEnumeratorContext[FileSourceSplit], checkpoint: Any = None
    ) -> FileSplitEnumerator:
        """An enumerator that lists files when it starts."""
        return FileSplitEnumerator(context, self, checkpoint)

    def create_reader(self, context: SourceReaderContext) -> FileSourceReader[T]:
        """A reader of splits."""
        return FileSourceReader(context, self._format)

    def letter_reader(self) -> Callable[[DeadLetter], SourceRecords] | None:
        """Return what reads records of letters by the format."""
        if (
            not self._format.reads_single_records
            or type(self._format).record_parser is FileFormat.record_parser
        ):
            return None
        parsers: dict[str, RecordParser] = {}

        def read(letter: DeadLetter) -> SourceRecords:
            parser = parsers.get(letter.split)
            if parser is None:
                parser = self._format.record_parser(letter.split)
                assert parser is not None, "a format that has record_parser returns a parser"
                parsers[letter.split] = parser
            return parser(letter)

        return read

    def produced_type(self) -> TypeInformation | None:
        """The type that the format declares."""
        return self._format.produced_type()

    def produced_schema(self) -> pa.Schema | None:
        """The schema of a columnar format; read from the first file where the format declares none."""
        files = [file.path for path in self._paths[:1] for file in find_files(path)]
        return self._format.produced_schema(files[0] if files else None)

    @property
    def scanned_format(self) -> str | None:
        """The format of files whose columns leave the source as they are."""
        # A class of the user's may read otherwise.
        is_plain = type(self) is FileSource and self._discovery_seconds is None
        # A scanner would fail at what the readers leave out.
        is_plain = is_plain and self.errors.policy is ErrorPolicy.FAIL
        return self._format.scanned_as if is_plain else None

    @property
    def can_narrow(self) -> bool:
        """Whether the format can leave out columns."""
        # A class of the user's may read otherwise. Dead letters have all columns of a row.
        is_plain = type(self) is FileSource and self.errors.policy is ErrorPolicy.FAIL
        return is_plain and self._format.can_narrow

    def narrowed(self, wanted: WantedColumns) -> FileSource[T]:
        """Return a source of the same files, whose format decodes less of them."""
        return FileSource(
            self._format.narrowed(wanted), self._paths, self._enumerator, self._discovery_seconds
        )

    def scanned_bytes(self) -> int:
        """Bytes of the present files."""
        return sum(file.size for path in self._paths for file in find_files(path))

    def estimated_bytes(self) -> int | None:
        """Bytes of the present files, as they are stored."""
        return self.scanned_bytes()

    @property
    def discovery_seconds(self) -> float | None:
        """Seconds between two looks for new files; None = one look."""
        return self._discovery_seconds

    def find_splits(self, seen: frozenset[str]) -> tuple[list[FileSourceSplit], frozenset[str]]:
        """The splits of files not seen yet, in order of path and offset, and the files now seen."""
        files: dict[str, FileStatus] = {}
        for path in self._paths:
            try:
                files.update((file.path, file) for file in find_files(path))
            except FileNotFoundError:
                if self._discovery_seconds is None:
                    raise FileSourceError(
                        f"FileSource: input {path} was removed after the job was built"
                    ) from None
        # Imported late: clients read no files.
        from yarrow.datastream.connectors.discovery import new
        from yarrow.datastream.connectors.line_blocks import is_compressed

        splits: list[FileSourceSplit] = []
        for path in new(seen, files.keys()):
            may_split = self._format.splittable and not (self._format.decompresses and is_compressed(path))
            splits.extend(self._enumerator.splits_of(files[path], may_split))
        return splits, seen | files.keys()


class FileSourceBuilder(Generic[T]):
    """Collects the settings of a FileSource."""

    def __init__(self, file_format: FileFormat[T], paths: Sequence[str]) -> None:
        if not isinstance(file_format, FileFormat):
            raise TypeError(f"FileSource: a StreamFormat or BulkFormat is expected, not {file_format!r}")
        if not paths:
            raise ValueError("FileSource: give at least one path")
        for path in paths:
            if not isinstance(path, str):
                raise TypeError(f"FileSource: a path must be a str, not {path!r}")
        self._format = file_format
        self._paths = paths
        self._discovery_seconds: float | None = None
        self._enumerator = FileEnumeratorProvider.default_splittable_file_enumerator()

    def monitor_continuously(self, discovery_interval: Duration | timedelta) -> FileSourceBuilder[T]:
        """Looks for new files at this interval and never ends. Raises ValueError unless it is above 0."""
        if isinstance(discovery_interval, Duration):
            seconds = discovery_interval.to_seconds()
        else:
            seconds = discovery_interval.total_seconds()
        if seconds <= 0:
            raise ValueError(f"monitor_continuously: the interval must be above 0, not {discovery_interval}")
        self._discovery_seconds = seconds
        return self

    def process_static_file_set(self) -> FileSourceBuilder[T]:
        """Reads the files there are at the start and ends; the default."""
        self._discovery_seconds = None
        return self

    def set_file_enumerator(self, file_enumerator: FileEnumeratorProvider) -> FileSourceBuilder[T]:
        """Set how files are cut into splits."""
        self._enumerator = file_enumerator
        return self

    def set_split_assigner(self, split_assigner: FileSplitAssignerProvider) -> FileSourceBuilder[T]:
        """Set which reader gets which split; there is one way."""
        if not isinstance(split_assigner, FileSplitAssignerProvider):
            raise TypeError(f"set_split_assigner takes a FileSplitAssignerProvider, not {split_assigner!r}")
        return self

    def on_error(
        self,
        policy: str | ErrorPolicy,
        *,
        max_per_minute: int | None = None,
        max_share: float | None = None,
    ) -> FileSourceBuilder[T]:
        """Set what becomes of records that the format cannot read, as `FileFormat.on_error` does."""
        self._format = self._format.on_error(policy, max_per_minute=max_per_minute, max_share=max_share)
        return self

    def build(self) -> FileSource[T]:
        """The source."""
        return FileSource(self._format, self._paths, self._enumerator, self._discovery_seconds)


class FileSplitEnumerator(OnRequestEnumerator[FileSourceSplit]):
    """Lists files once or at intervals; readers that asked in vain get splits as soon as there are some."""

    def __init__(
        self,
        context: SplitEnumeratorContext[FileSourceSplit],
        source: FileSource[Any],
        checkpoint: FileEnumeratorState | None,
    ) -> None:
        super().__init__(context, () if checkpoint is None else checkpoint.unassigned)
        self._source = source
        self._seen = frozenset[str]() if checkpoint is None else checkpoint.seen
        self._restored = checkpoint is not None
        self._waiting: list[int] = []
        # A program that makes a source has no enumerator.
        from yarrow.datastream.connectors.discovery import DiscoveryTimer

        self._timer = DiscoveryTimer(context, source.discovery_seconds, self._discover)

    def start(self) -> None:
        """Looks for files; a restored bounded source has them all."""
        if self._source.discovery_seconds is not None or not self._restored:
            self._discover()
        self._timer.begin()

    def handle_split_request(self, subtask: int, host: str | None) -> None:
        """Assigns the next split; without one the reader waits for discovery, or ends."""
        if self._unassigned or self._source.discovery_seconds is None:
            super().handle_split_request(subtask, host)
        elif subtask not in self._waiting:
            self._waiting.append(subtask)

    def add_splits_back(self, splits: Sequence[FileSourceSplit], subtask: int) -> None:
        """Put splits back; the failed reader asks again after its restart."""
        super().add_splits_back(splits, subtask)
        self._waiting = [waiting for waiting in self._waiting if waiting != subtask]
        self._serve_waiting()

    def snapshot_state(self, checkpoint_id: int) -> Any:
        """A FileEnumeratorState."""
        return FileEnumeratorState(tuple(self._unassigned), self._seen)

    def close(self) -> None:
        """Ends discovery."""
        self._timer.close()

    def _discover(self) -> None:
        splits, self._seen = self._source.find_splits(self._seen)
        self._unassigned.extend(splits)
        self._serve_waiting()

    def _serve_waiting(self) -> None:
        while self._waiting and self._unassigned:
            self._context.assign_split(self._unassigned.popleft(), self._waiting.pop(0))


class FileSourceReader(OneByOneReader[T, FileSourceSplit], Generic[T]):
    """Reads splits through the format's readers."""

    _split: FileSourceSplit
    _reader: FileReader | None = None

    def __init__(self, context: SourceReaderContext, file_format: FileFormat[T]) -> None:
        super().__init__(context)
        self._format = file_format
        #: Bytes of rows since somebody asked first; until then nobody pays for counting.
        self._bytes = 0.0
        self._counts_bytes = False

    def open_split(self, split: FileSourceSplit) -> None:
        self._split = split
        try:
            self._reader = self._format.create_reader(split)
        except (OSError, FileSystemError) as error:
            raise FileSourceError(
                f"{split.path} cannot be opened: {error}. The file was there when its folder was listed. It"
                " must be readable from every worker (an hdfs:// path, or a folder that all machines share)"
            ) from error

    def read_split(self, max_rows: int) -> SourceRecords | None:
        if self._reader is None:
            raise RuntimeError(f"{self._split.path}: read before it was opened")
        try:
            records = self._reader.read(max_rows)
            if self._counts_bytes and records is not None:
                self._bytes += self._reader.bytes_of_rows()
            return records
        except (OSError, EOFError, FileSystemError) as error:
            raise FileSourceError(f"{self._split.path} cannot be read: {error}") from error

    def current_split(self) -> FileSourceSplit:
        return self._split if self._reader is None else replace(self._split, position=self._reader.position())

    def bytes_read(self) -> int:
        """Return the bytes of the rows that were read since the first call."""
        self._counts_bytes = True
        return int(self._bytes)

    def pending_bytes(self) -> int | None:
        """Return the bytes of the waiting splits and the rest of the open split."""
        reader = self._reader
        left = 0 if reader is None else reader.pending_bytes()
        return None if left is None else left + sum(split.length for split in list(self._waiting))

    def close_split(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()
