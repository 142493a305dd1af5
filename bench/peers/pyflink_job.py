"""The keyed row job on PyFlink: integers -> (x % 1000, 1) -> by key -> running sum -> filter (even sums).

Python functions run in process mode. Bundles hold 10 000 elements: with its default of 100 000 long runs
fall to a fraction of the rate.
"""

from __future__ import annotations

import argparse
import sys

from pyflink.common import Configuration, Types, WatermarkStrategy
from pyflink.datastream import StreamExecutionEnvironment
from pyflink.datastream.connectors.number_seq import NumberSequenceSource


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    arguments.add_argument("--parallelism", type=int, default=2)
    arguments.add_argument("--bundle", type=int, default=10_000)
    given = arguments.parse_args()

    configuration = Configuration()
    configuration.set_string("python.fn-execution.bundle.size", str(given.bundle))
    configuration.set_string("python.execution-mode", "process")
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("rest.port", "0")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(given.parallelism)
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    numbers = NumberSequenceSource(0, given.records - 1)
    integers = env.from_source(numbers, WatermarkStrategy.no_watermarks(), "integers", Types.LONG())
    (
        integers.map(lambda x: (x % 1000, 1), output_type=pair)
        .key_by(lambda row: row[0], key_type=Types.LONG())
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
        .filter(lambda row: row[1] % 2 == 0)
    )
    env.execute("keyed sum")


if __name__ == "__main__":
    main()
