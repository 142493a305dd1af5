"""StreamFormat, which reads record by record, and the one that comes with it: lines of text as strings.

Owner: the task's thread. Lines work for character sets in which a newline is the byte 10. So a file can be
cut at lines before it is decoded.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.connectors.file_format import (
    FileFormat,
    FileSourceSplit,
    MalformedPolicy,
)
from yarrow.datastream.connectors.line_blocks import (
    ROW_BLOCK,
    BlockErrors,
    BlockParser,
    BlockReader,
    LineBlocks,
)

#: Decoding costs little a line, so that blocks may be larger than those of other row formats.
_TEXT_BLOCK = 16 * ROW_BLOCK


T = TypeVar("T")


class StreamFormat(FileFormat[T], Generic[T]):
    """A format read record by record."""

    @staticmethod
    def text_line_format(
        charset_name: str = "UTF-8", on_malformed: MalformedPolicy = MalformedPolicy.FAIL
    ) -> StreamFormat[str]:
        """Lines of text without their ends.

        Raises LookupError for an unknown character set, ValueError for one in which a newline is not the
        byte 10.
        """
        return TextLineFormat(charset_name, on_malformed)


class TextLineFormat(StreamFormat[str]):
    """Lines without `\\n` or `\\r\\n`; made by `StreamFormat.text_line_format`."""

    splittable = True
    decompresses = True

    def __init__(self, charset_name: str, on_malformed: MalformedPolicy) -> None:
        if "\n".encode(charset_name) != b"\n":
            raise ValueError(
                f"text_line_format: in {charset_name} a newline is not the single byte 10; "
                "convert the file to UTF-8"
            )
        self._charset = charset_name
        self._on_malformed = on_malformed

    def produced_type(self) -> TypeInformation:
        """Types.STRING()."""
        return Types.STRING()

    def create_reader(self, split: FileSourceSplit) -> BlockReader:
        """A reader of lines."""
        blocks = LineBlocks(split, _TEXT_BLOCK)
        return BlockReader(split, blocks, _TextParser(self._charset), self._on_malformed)


class _TextParser(BlockParser):
    def __init__(self, charset: str) -> None:
        self._charset = charset

    def parse(self, block: bytes, at_file_start: bool, errors: BlockErrors) -> list[str]:
        try:
            lines = lines_of(block.decode(self._charset))
        except UnicodeDecodeError:
            return self._line_by_line(block, errors)
        if b"\r" in block:
            return [line.removesuffix("\r") for line in lines]
        return lines

    def _line_by_line(self, block: bytes, errors: BlockErrors) -> list[str]:
        lines = []
        for index, line in enumerate(block.removesuffix(b"\n").split(b"\n")):
            try:
                lines.append(line.decode(self._charset).removesuffix("\r"))
            except UnicodeDecodeError as error:
                reason = f"not {self._charset}: {error.reason} at byte {error.start} of the line"
                errors.report(index, line.decode(self._charset, "replace"), reason)
        return lines


def lines_of(text: str) -> list[str]:
    """The lines of a block of whole lines; a final newline begins no further line."""
    return text.removesuffix("\n").split("\n")
