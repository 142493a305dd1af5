"""The keyed sum in Flink SQL, all in Java: datagen -> GROUP BY key -> blackhole, through PyFlink."""

from __future__ import annotations

import argparse

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("rows", type=int)
    arguments.add_argument("--keys", type=int, default=1000)
    arguments.add_argument("--parallelism", type=int, default=2)
    arguments.add_argument("--mini-batch", action="store_true", help="fold updates of 5000 rows a key")
    given = arguments.parse_args()

    configuration = Configuration()
    configuration.set_string("parallelism.default", str(given.parallelism))
    configuration.set_string("rest.port", "0")
    if given.mini_batch:
        configuration.set_string("table.exec.mini-batch.enabled", "true")
        configuration.set_string("table.exec.mini-batch.allow-latency", "100 ms")
        configuration.set_string("table.exec.mini-batch.size", "5000")
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration)
    tables = TableEnvironment.create(settings.build())
    tables.execute_sql(
        f"""
        CREATE TABLE numbers (k BIGINT, v BIGINT) WITH (
            'connector' = 'datagen', 'rows-per-second' = '1000000000',
            'number-of-rows' = '{given.rows}',
            'fields.k.min' = '0', 'fields.k.max' = '{given.keys - 1}',
            'fields.v.min' = '0', 'fields.v.max' = '9')
        """
    )
    tables.execute_sql("CREATE TABLE sums (k BIGINT, total BIGINT) WITH ('connector' = 'blackhole')")
    tables.execute_sql("INSERT INTO sums SELECT k, SUM(v) FROM numbers GROUP BY k").wait()


if __name__ == "__main__":
    main()
