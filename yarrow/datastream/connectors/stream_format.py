"""StreamFormat, which reads record by record, and the one that comes with it: lines of text as strings.

Owner: the task's thread. Lines work for character sets in which a newline is the byte 10. So a file can be
cut at lines before it is decoded.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.values.error_handling import ErrorHandling, ErrorPolicy
from yarrow.datastream.connectors.file_format import (
    FileFormat,
    FileSourceSplit,
    RecordParser,
)

if TYPE_CHECKING:
    from yarrow.datastream.connectors.line_blocks import BlockReader

T = TypeVar("T")


class StreamFormat(FileFormat[T], Generic[T]):
    """A format read record by record."""

    @staticmethod
    def text_line_format(
        charset_name: str = "UTF-8", on_malformed: ErrorPolicy = ErrorPolicy.FAIL
    ) -> StreamFormat[str]:
        """Lines of text without their ends.

        Raises LookupError for an unknown character set, ValueError for one in which a newline is not the
        byte 10.
        """
        return TextLineFormat(charset_name, on_malformed)


class TextLineFormat(StreamFormat[str]):
    """Lines without `\\n` or `\\r\\n`; made by `StreamFormat.text_line_format`."""

    splittable = True
    counts_bytes = True
    decompresses = True
    reads_single_records = True

    def __init__(self, charset_name: str, on_malformed: ErrorPolicy) -> None:
        if "\n".encode(charset_name) != b"\n":
            raise ValueError(
                f"text_line_format: in {charset_name} a newline is not the single byte 10; "
                "convert the file to UTF-8"
            )
        self._charset = charset_name
        self.errors = ErrorHandling(on_malformed)

    def produced_type(self) -> TypeInformation:
        """Types.STRING()."""
        return Types.STRING()

    def record_parser(self, path: str) -> RecordParser:
        """A parser of one line."""
        from yarrow.datastream.connectors.line_blocks import TextParser, letter_parser

        return letter_parser(TextParser(self._charset), self.errors.policy)

    def create_reader(self, split: FileSourceSplit) -> BlockReader:
        """A reader of lines."""
        # Imported late: clients read no files.
        from yarrow.datastream.connectors.line_blocks import TEXT_BLOCK, BlockReader, LineBlocks, TextParser

        blocks = LineBlocks(split, TEXT_BLOCK)
        return BlockReader(split, blocks, TextParser(self._charset), self.errors.policy)
