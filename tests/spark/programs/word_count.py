"""PyFlink's word count by other imports: the same calls, from files to files."""

# mypy: ignore-errors
import argparse
import sys

from yarrow.common import Encoder, Types, WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import (
    FileSink,
    FileSource,
    OutputFileConfig,
    RollingPolicy,
    StreamFormat,
)

LINES = [
    "whatever is bounded and big runs side by side",
    "with the streams and gives what a stream gives",
    "a stream that ends is a batch that began",
]


def word_count(input_path, output_path):
    env = StreamExecutionEnvironment.get_execution_environment()
    if input_path is None:
        lines = env.from_collection(LINES, Types.STRING())
    else:
        lines = env.from_source(
            source=FileSource.for_record_stream_format(StreamFormat.text_line_format(), input_path)
            .process_static_file_set()
            .build(),
            watermark_strategy=WatermarkStrategy.for_monotonous_timestamps(),
            source_name="files",
        )

    def words(line):
        yield from line.split()

    counts = (
        lines.flat_map(words)
        .map(lambda word: (word, 1), output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
        .key_by(lambda pair: pair[0])
        .reduce(lambda one, other: (one[0], one[1] + other[1]))
    )
    if output_path is None:
        counts.print()
    else:
        counts.map(lambda pair: f"{pair[0]} {pair[1]}", Types.STRING()).sink_to(
            sink=FileSink.for_row_format(
                base_path=output_path, encoder=Encoder.simple_string_encoder("UTF-8")
            )
            .with_output_file_config(
                OutputFileConfig.builder().with_part_prefix("words").with_part_suffix(".txt").build()
            )
            .with_rolling_policy(RollingPolicy.default_rolling_policy())
            .build()
        )
    env.execute("word count")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", dest="input")
    parser.add_argument("--output", dest="output")
    known, _ = parser.parse_known_args(sys.argv[1:])
    word_count(known.input, known.output)
