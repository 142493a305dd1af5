"""Counts words, of a text file or of a built-in text.

python examples/word_count.py
python examples/word_count.py --input FILE
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from yarrow.common import Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSource, StreamFormat

TEXT = [
    "A stream is a table that has not ended,",
    "a table is a stream that waits to go on.",
    "Who counts the words of a stream",
    "counts for as long as the stream goes on.",
]


def words_of(line: str) -> Iterator[tuple[str, int]]:
    """Each word of a line, with the number one."""
    for word in re.findall(r"[\w']+", line.lower()):
        yield word, 1


def word_count(path: str | None) -> None:
    """Prints the running count of each word."""
    env = StreamExecutionEnvironment.get_execution_environment()
    if path is None:
        lines = env.from_collection(TEXT, Types.STRING())
    else:
        source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), path).build()
        lines = env.from_source(source, WatermarkStrategy.no_watermarks(), "text")
    words = lines.flat_map(words_of, Types.TUPLE([Types.STRING(), Types.LONG()]))
    counts = words.key_by(lambda pair: pair[0]).reduce(lambda one, other: (one[0], one[1] + other[1]))
    counts.print()
    env.execute("word count")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Counts words.")
    parser.add_argument("--input", help="a text file, a folder or a pattern; a built-in text without it")
    word_count(parser.parse_args().input)
