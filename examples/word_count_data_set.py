"""Counts words with the DataSet API, of a text file or of a built-in text; common words are a broadcast variable.

python examples/word_count_data_set.py
python examples/word_count_data_set.py --input FILE --output FOLDER
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator

from yarrow.batch.dataset import ExecutionEnvironment, Order, WriteMode
from yarrow.batch.dataset.functions import FlatMapFunction, RuntimeContext
from yarrow.common import Types
from yarrow.common.accumulators import IntCounter

TEXT = [
    "A stream is a table that has not ended,",
    "a table is a stream that waits to go on.",
    "Who counts the words of a stream",
    "counts for as long as the stream goes on.",
]
COMMON = ["a", "the", "of", "is", "to"]


class Words(FlatMapFunction[str, tuple[str, int]]):
    """The words of a line that are not common, each with the number one."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Reads the common words."""
        self.common = set(runtime_context.get_broadcast_variable("common"))
        self.skipped = IntCounter()
        runtime_context.add_accumulator("skipped", self.skipped)

    def flat_map(self, value: str) -> Iterator[tuple[str, int]]:
        """The words of a line."""
        for word in re.findall(r"[\w']+", value.lower()):
            if word in self.common:
                self.skipped.add(1)
            else:
                yield word, 1


def word_count(path: str | None, output: str | None) -> None:
    """Prints the words that occur most often, or writes all counts as CSV."""
    env = ExecutionEnvironment.get_execution_environment()
    lines = env.from_collection(TEXT, Types.STRING()) if path is None else env.read_text_file(path)
    words = lines.flat_map(Words(), Types.TUPLE([Types.STRING(), Types.LONG()]))
    words.with_broadcast_set(env.from_collection(COMMON, Types.STRING()), "common")
    counts = words.group_by(0).sum(1)
    if output is None:
        counts.group_by(1).sort_group(0, Order.ASCENDING).reduce_group(row_of_words).print()
        result = env.get_last_job_execution_result()
    else:
        counts.write_as_csv(output, write_mode=WriteMode.OVERWRITE)
        result = env.execute("word count")
    if result is not None:
        print(f"{result.get_accumulator_result('skipped')} common words were left out")


def row_of_words(rows: Iterator[tuple[str, int]]) -> Iterator[str]:
    """A line with the words that occur equally often."""
    first, *others = rows
    yield f"{first[1]}: {' '.join([first[0], *(word for word, _ in others)])}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Counts words.")
    parser.add_argument("--input", help="a text file, a folder or a pattern; a built-in text without it")
    parser.add_argument("--output", help="the folder for CSV files; without it counts are printed")
    arguments = parser.parse_args()
    word_count(arguments.input, arguments.output)
