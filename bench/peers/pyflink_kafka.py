"""Brings broker, topics and connector up for bench/peers/pyflink_kafka_job.py; prints servers and jar, a line each."""

from __future__ import annotations

import argparse

from bench.case import PEERS
from bench.programs.kafka_topic import broker
from bench.programs.kafka_users import emptied, filled
from tests.support.services.jars import jar_folder


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("records", type=int)
    given = arguments.parse_args()
    servers = broker()
    filled(servers, given.records)
    emptied(servers)
    jars = jar_folder(PEERS / "pom.xml", "pyflink-kafka").glob("flink-sql-connector-kafka-*.jar")
    print(servers, next(jars), sep="\n")


if __name__ == "__main__":
    main()
