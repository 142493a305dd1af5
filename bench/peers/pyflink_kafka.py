"""Brings broker, topics and connector up for bench/peers/pyflink_kafka_job.py; prints servers and jar, a line each."""

from __future__ import annotations

from bench.case import PEERS
from bench.programs.kafka_users import brought_up
from tests.support.services.jars import jar_folder


def main() -> None:
    servers, _ = brought_up(__doc__)
    jars = jar_folder(PEERS / "pom.xml", "pyflink-kafka").glob("flink-sql-connector-kafka-*.jar")
    print(servers, next(jars), sep="\n")


if __name__ == "__main__":
    main()
