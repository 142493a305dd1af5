"""The Kafka source against a bare loop of its client, on the same broker and with the same settings of the client."""

from __future__ import annotations

from dataclasses import replace

from bench.case import PYTHON, Case, Measure, Program, engine, module_peer, peer

#: The start of a job takes seconds, and differs by half a second between runs. So the difference of the sizes takes
#: several seconds, of bytes too.
_SIZES = (500_000, 6_500_000)


def _topic(size: int) -> list[str]:
    return [PYTHON, "-m", "bench.programs.kafka_topic", str(size)]


def _users(size: int) -> list[str]:
    return [PYTHON, "-m", "bench.programs.kafka_users", str(size)]


def _job(form: str) -> Program:
    name = f"Yarrow, Kafka to a sink, {form}"
    return engine("kafka_rows.py", "--form", form, name=name, sizes=_SIZES, quick=100_000, module=True)


def _loop(form: str) -> Program:
    name = f"bare confluent-kafka, {form}"
    return module_peer("bare_kafka", "--form", form, name=name, sizes=_SIZES, quick=100_000)


def _case(form: str, share: float) -> Case:
    loop = _loop(form)
    goals = ((loop.name, share),)
    return Case(f"kafka-{form}", _job(form), (loop,), at_least=goals, paired=True, prepare=_topic)


_COUNT_SIZES = (500_000, 4_500_000)
_COUNTS = engine(
    "kafka_counts.py", name="Yarrow, Kafka to Kafka", sizes=_COUNT_SIZES, quick=100_000, module=True
)
_BARE_COUNTS = module_peer(
    "bare_kafka_counts",
    name="bare confluent-kafka, a transaction a second",
    sizes=_COUNT_SIZES,
    quick=100_000,
)
_PYFLINK_COUNTS = replace(
    peer("pyflink_kafka_job.py", "--python", PYTHON, name="PyFlink, Kafka to Kafka", sizes=(20_000, 120_000)),
    once=True,
)
_RESTART = engine("kafka_restart.py", name="first row after a kill", sizes=(3,), quick=1, module=True)

CASES = [
    _case("bytes", 0.8),
    _case("json", 0.8),
    _case("columns", 0.9),
    Case(
        "kafka-to-kafka",
        _COUNTS,
        (_BARE_COUNTS, _PYFLINK_COUNTS),
        at_least=((_BARE_COUNTS.name, 0.6), (_PYFLINK_COUNTS.name, 8.0)),
        paired=True,
        prepare=_users,
    ),
    Case("kafka-restart", _RESTART, measure=Measure.REPORTED, at_most=5.0),
]
