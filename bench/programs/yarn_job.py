"""The program that bench/yarn runs on both engines: `ENGINE` (yarrow or pyflink) names the package to import.

`short`: a thousand records are counted by key. `long`: a keyed sum without end, at a rate that leaves a core idle,
for measuring recoveries; where its checkpoints go is configured by whoever submits it.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

KEYS = 100
#: Seconds a record takes in the long job.
PAUSE = 0.0005


def main(engine: str, kind: str) -> None:
    common: Any = importlib.import_module(f"{engine}.common")
    datastream: Any = importlib.import_module(f"{engine}.datastream")
    number_seq: Any = importlib.import_module(f"{engine}.datastream.connectors.number_seq")

    env = datastream.StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    pair = common.Types.TUPLE([common.Types.LONG(), common.Types.LONG()])
    last = 999 if kind == "short" else 1 << 40
    source = number_seq.NumberSequenceSource(0, last)
    numbers = env.from_source(
        source, common.WatermarkStrategy.no_watermarks(), "numbers", common.Types.LONG()
    )

    def count_one(number: int) -> tuple[int, int]:
        if kind != "short":
            time.sleep(PAUSE)
        return number % KEYS, 1

    sums = (
        numbers.map(count_one, output_type=pair)
        .key_by(lambda row: row[0], key_type=common.Types.LONG())
        .reduce(lambda a, b: (a[0], a[1] + b[1]))
    )
    # A thousand lines of the short job; of the long one nothing is printed.
    sums.filter(lambda row: kind == "short").print()
    env.execute(f"bench {kind}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
