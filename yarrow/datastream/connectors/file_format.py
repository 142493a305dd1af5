"""FileFormat: makes readers of splits, which give records and say where they stand.

Owner: the task's thread. A position is a byte (or other) offset at which the format can resume, and the
number of records behind it that were already returned. Formats know nothing of enumerators, checkpoints or
tasks.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Self, TypeVar

from yarrow.common.values.error_handling import FAILING, ErrorHandling, ErrorPolicy, error_handling
from yarrow.datastream.connectors.base import SourceRecords, SourceSplit
from yarrow.datastream.connectors.dead_letters import DEAD_LETTERS, DeadLetter
from yarrow.runtime.common.errors import UnsupportedFeatureError, YarrowError

if TYPE_CHECKING:
    import pyarrow as pa

    from yarrow.common.typeinfo import TypeInformation
    from yarrow.common.values.conditions import WantedColumns

T = TypeVar("T")

#: Older names, which programs of files import.
MALFORMED_RECORDS = DEAD_LETTERS
MalformedPolicy = ErrorPolicy
MalformedRecord = DeadLetter

_SHOWN_TEXT = 120


class MalformedRecordError(YarrowError):
    """A record of a file cannot be read and the policy is to fail."""

    def __init__(self, record: DeadLetter) -> None:
        text = record.text if len(record.text) <= _SHOWN_TEXT else record.text[: _SHOWN_TEXT - 3] + "..."
        super().__init__(
            f"{record.split}, line {record.position}: {record.error}: {text!r}; mend the line, or give the source "
            'on_error("skip") or on_error("dead_letter")'
        )
        self.record = record


class FileFormatError(YarrowError):
    """A file does not fit its format or schema."""


@dataclass(frozen=True, slots=True)
class FilePosition:
    """A position to resume at: at `offset`, without the first `records` records from there."""

    offset: int
    records: int = 0


@dataclass(frozen=True, slots=True)
class FileSourceSplit(SourceSplit):
    """The bytes `offset` to `offset + length` of a file; a record belongs to the split in which it begins."""

    id: str
    path: str
    offset: int
    length: int
    file_size: int
    #: None = not begun.
    position: FilePosition | None = None

    @property
    def split_id(self) -> str:
        return self.id

    @property
    def end(self) -> int:
        """The first byte behind the split."""
        return self.offset + self.length


class FileReader(ABC):
    """Reads one split; `position` lies just behind what `read` returned last."""

    @abstractmethod
    def read(self, max_rows: int) -> SourceRecords | None:
        """Return up to `max_rows` rows; None = the end of the split."""

    @abstractmethod
    def position(self) -> FilePosition:
        """Return the position at which a reader of the same split would continue."""

    def pending_bytes(self) -> int | None:
        """Bytes of the split that were not read from the file yet; None where the format cannot tell. Any thread."""
        return None

    def bytes_of_rows(self) -> float:
        """Return the bytes in the file of what `read` has returned last: a block spreads its bytes over its rows.

        The readers of a format that declares `counts_bytes` must have this method.
        """
        raise TypeError(f"{type(self).__name__} does not count bytes: it has no bytes_of_rows")

    def close(self) -> None:
        """Closes the file."""
        return None


#: Makes rows of the bytes of one record, without its line end, which is a dead letter.
RecordParser = Callable[[DeadLetter], SourceRecords]


class FileFormat(ABC, Generic[T]):
    """The layout of records in a file: a picklable description."""

    #: Whether a file may be read in parts; compressed text never is, whatever this says.
    splittable: bool = False
    #: Whether the format reads through a decompressor chosen by the file name (.gz, .bz2, .xz).
    decompresses: bool = False
    #: Whether what cannot be read, a record or a block of records, leaves the others readable.
    reads_single_records: bool = False
    #: Whether readers count the bytes of rows by `bytes_of_rows`: a FileSource then takes a rate limit in bytes.
    counts_bytes: bool = False
    #: The treatment that readers give to a record that they cannot read.
    errors: ErrorHandling = FAILING

    def on_error(
        self,
        policy: str | ErrorPolicy,
        *,
        max_per_minute: int | None = None,
        max_share: float | None = None,
    ) -> Self:
        """Return the format with this treatment of records that cannot be read: "fail", "skip" or "dead_letter".

        Past `max_per_minute` or `max_share` the job fails; each subtask counts for itself. Raises ValueError for
        another treatment or bound, and UnsupportedFeatureError for a format whose records cannot be told apart.
        """
        handling = error_handling(policy, max_per_minute, max_share)
        if handling.policy is not ErrorPolicy.FAIL and not self.reads_single_records:
            raise UnsupportedFeatureError(
                f"on_error({handling.policy.value!r}) is refused for {type(self).__name__}: it reads no single records,"
                ' so one that is damaged cannot be left out. Keep "fail", and mend or remove the file'
            )
        changed = copy.copy(self)
        changed.errors = handling
        return changed

    @property
    def makes_new_rows(self) -> bool:
        """Whether each row is a new object, all through, that readers neither keep nor change: it needs no copy."""
        return False

    @property
    def makes_named_rows(self) -> bool:
        """Whether each record is a Row with field names of its own: the engine need not look for those without."""
        return False

    @property
    def scanned_as(self) -> str | None:
        """`"parquet"` or `"csv"` if the format gives columns of such files without any change of rows."""
        return None

    @property
    def can_narrow(self) -> bool:
        """Whether `narrowed` leaves something out."""
        return False

    def narrowed(self, wanted: WantedColumns) -> FileFormat[T]:
        """Return a format that may leave out columns and rows which nobody wants; by default it is this one."""
        return self

    @abstractmethod
    def create_reader(self, split: FileSourceSplit) -> FileReader:
        """A reader of a split, at its position."""

    def record_parser(self, path: str) -> RecordParser | None:
        """Return what reads single records of a file again, from their bytes; None = nothing can.

        `path`: the file that the records came from, which may tell the names of columns.
        """
        return None

    def produced_type(self) -> TypeInformation | None:
        """The declared type of the rows; None = undeclared."""
        return None

    def produced_schema(self, first_file: str | None) -> pa.Schema | None:
        """The Arrow schema of a columnar format; `first_file` may be looked at where none was declared."""
        return None


class BulkFormat(FileFormat[T], Generic[T]):
    """A format read many records at a time."""
