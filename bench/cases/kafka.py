"""The Kafka source against a bare loop of its client, on the same broker and with the same settings of the client."""

from __future__ import annotations

from bench.case import Case, Program, engine, module_peer

_SIZES = (500_000, 2_500_000)


def _job(form: str) -> Program:
    name = f"Yarrow, Kafka to a sink, {form}"
    return engine("kafka_rows.py", "--form", form, name=name, sizes=_SIZES, quick=100_000, module=True)


def _loop(form: str) -> Program:
    name = f"bare confluent-kafka, {form}"
    return module_peer("bare_kafka", "--form", form, name=name, sizes=_SIZES, quick=100_000)


def _case(form: str, share: float) -> Case:
    loop = _loop(form)
    return Case(f"kafka-{form}", _job(form), (loop,), at_least=((loop.name, share),), paired=True)


CASES = [_case("bytes", 0.8), _case("json", 0.8), _case("columns", 0.9)]
