"""The shop that fills the source topics: orders, payments, customers and rules, some of them broken.

Everything follows from a seed, so that each run of the example has the same result. Records bear the time at which
they happened, and come up to four seconds late.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

from confluent_kafka import Producer

ORDERS, PAYMENTS, CUSTOMERS, RULES = "orders", "payments", "customers", "rules"
#: 2026-03-02, 09:00 UTC in ms.
OPENING = 1_772_442_000_000
MINUTE = 60_000
#: ms by which a record may come late.
LATEST = 4000
COUNTRIES = ("DE", "FR", "IT", "PL")
METHODS = ("card", "cash", "transfer")


class Record(NamedTuple):
    """A record of a topic; `at` is when it happened, in ms."""

    topic: str
    key: bytes
    value: bytes
    at: int


def records(minutes: int, seed: int = 7) -> list[Record]:
    """Return what happens in some minutes, in the order in which it comes to the topics."""
    chance = random.Random(seed)
    made = [_customer(f"c{number}", chance.choice(COUNTRIES), OPENING) for number in range(25)]
    made += [_rule("large cash", "cash", 150.0, OPENING)]
    order = 0
    for minute in range(minutes):
        began = OPENING + minute * MINUTE
        # Customers and rules change seldom. A heartbeat says that nothing is missing up to here.
        made += [Record(topic, b"", b"{}", began + MINUTE - 1) for topic in (CUSTOMERS, RULES)]
        if minute % 4 == 2:
            made.append(_customer(f"c{chance.randrange(25)}", chance.choice(COUNTRIES), began + 30_000))
        if minute % 6 == 3:
            method, least = chance.choice(METHODS), chance.choice((100.0, 160.0))
            made.append(_rule(f"large {method}", method, least, began + 20_000))
        if minute % 6 == 5:
            made.append(_rule("large cash", None, None, began + 10_000))
        for _ in range(40):
            order += 1
            made += _order(order, began + chance.randrange(MINUTE), chance)
    return sorted(made, key=lambda record: record.at + chance.randrange(LATEST))


def send(servers: str, chosen: list[Record]) -> None:
    """Write records to their topics and wait until the broker has them."""
    producer = Producer({"bootstrap.servers": servers})
    for record in chosen:
        producer.produce(record.topic, record.value, record.key, timestamp=record.at)
    if producer.flush(30):
        raise ConnectionError(f"Kafka at {servers} did not take all records within 30 s")


def by_minute(made: list[Record]) -> Iterator[list[Record]]:
    """Yield the records of each minute, in order."""
    waiting: list[Record] = []
    ends = OPENING + MINUTE
    for record in made:
        if record.at >= ends + LATEST:
            yield waiting
            waiting, ends = [], ends + MINUTE
        waiting.append(record)
    yield waiting


def _customer(customer: str, country: str, at: int) -> Record:
    value = {"customer": customer, "country": country}
    return Record(CUSTOMERS, customer.encode(), json.dumps(value).encode(), at)


def _rule(rule: str, method: str | None, least: float | None, at: int) -> Record:
    value = {"rule": rule, "method": method, "least": least}
    return Record(RULES, rule.encode(), json.dumps(value).encode(), at)


def _order(number: int, at: int, chance: random.Random) -> Iterator[Record]:
    """An order as JSON, and mostly its payment as CSV."""
    customer, amount = f"c{chance.randrange(27)}", f"{chance.randrange(500, 20_000) / 100:.2f}"
    currency = chance.choice(("EUR", "EUR", "PLN", "eur "))
    fault, key = chance.randrange(100), str(number).encode()
    value = {"order": number, "customer": customer.upper(), "amount": amount, "currency": currency}
    if fault == 0:
        value["currency"] = "XXX"
    text = json.dumps(value)
    yield Record(ORDERS, key, (text[:-9] if fault == 1 else text).encode(), at)
    if chance.random() < 0.9:
        line = f"{number};{chance.choice(METHODS)};{'many' if fault == 2 else amount}"
        paid = at + chance.randrange(1000, 11 * MINUTE)
        yield Record(PAYMENTS, key, (f"?{line}" if fault == 3 else line).encode(), paid)
