"""The first job: orders, payments, customers and rules become a table of the turnover of each country and minute.

    yarrow run examples/live_etl/turnover.py localhost:9092

- It normalizes orders (JSON) and payments (CSV). What nobody can read or convert goes to the topic of dead letters.
- An interval join finds the payment of each order, and an as-of join the country in which the customer lived then.
- Rules come as a broadcast stream. They change what is flagged while the job runs: a sale meets the rules of its time.
- Each country has a row for each of its last ten minutes in a compacted topic. An older row goes by a tombstone.

Everything is by event time and exactly once. So the table depends neither on failures nor on what comes first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import tables
from shop import CUSTOMERS, LATEST, ORDERS, PAYMENTS, RULES

from yarrow.common import DeserializationSchema, Duration, JobClient, Row, Time, Types, WatermarkStrategy
from yarrow.datastream import (
    DataStream,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from yarrow.datastream.connectors import DEAD_LETTERS, DeadLetter
from yarrow.datastream.connectors.kafka import KafkaOffsetsInitializer, KafkaSource
from yarrow.datastream.formats.csv import CsvRowDeserializationSchema
from yarrow.datastream.formats.json import JsonRowDeserializationSchema
from yarrow.datastream.window import TumblingEventTimeWindows

GROUP = "turnover"
#: Rows that each country has in the table.
KEPT_MINUTES = 10
EURO_CENTS = {"EUR": 100.0, "PLN": 23.0}

TEXT, NUMBER = Types.STRING(), Types.LONG()
RAW_ORDER = Types.ROW_NAMED(["order", "customer", "amount", "currency"], [NUMBER, TEXT, TEXT, TEXT])
RAW_PAYMENT = Types.ROW_NAMED(["order", "method", "amount"], [NUMBER, TEXT, TEXT])
CUSTOMER = Types.ROW_NAMED(["customer", "country"], [TEXT, TEXT])
RULE = Types.ROW_NAMED(["rule", "method", "least"], [TEXT, TEXT, Types.DOUBLE()])
ORDER = Types.ROW_NAMED(["order", "customer", "cents"], [NUMBER, TEXT, NUMBER])
PAYMENT = Types.ROW_NAMED(["order", "method"], [NUMBER, TEXT])
#: An order with its payment; the method of an order without one is None.
SALE = Types.ROW_NAMED(["customer", "method", "cents"], [TEXT, TEXT, NUMBER])
PLACED_SALE = Types.ROW_NAMED(["country", "method", "cents"], [TEXT, TEXT, NUMBER])
FLAGGED_SALE = Types.ROW_NAMED(
    ["country", "is_paid", "cents", "rules"], [TEXT, Types.BOOLEAN(), NUMBER, NUMBER]
)

REJECTED = OutputTag("rejected", tables.DEAD_LETTER)
RULE_VERSIONS = MapStateDescriptor("rules", TEXT, Types.PICKLED_BYTE_ARRAY())


class NormalizeOrder(ProcessFunction[Row, Any]):
    """Converts amounts to cents of euros, and unifies how customers are written."""

    def process_element(self, value: Row, ctx: ProcessFunction.Context) -> Iterator[Any]:
        try:
            rate = EURO_CENTS[value.currency.strip().upper()]
            cents = round(float(value.amount) * rate)
            yield Row(order=value.order, customer=value.customer.lower(), cents=cents)
        except (KeyError, ValueError, AttributeError) as error:
            yield REJECTED, rejected(ORDERS, value, error)


class NormalizePayment(ProcessFunction[Row, Any]):
    """Checks amounts; the join needs the number of the order and the method alone."""

    def process_element(self, value: Row, ctx: ProcessFunction.Context) -> Iterator[Any]:
        try:
            float(value.amount)
            yield Row(order=value.order, method=value.method)
        except (TypeError, ValueError) as error:
            yield REJECTED, rejected(PAYMENTS, value, error)


def rejected(topic: str, value: Row, error: Exception) -> Row:
    """Return the letter about a row that cannot be converted."""
    return Row(source=topic, position=None, raw=str(value), error=f"{type(error).__name__}: {error}")


def unreadable(letter: DeadLetter) -> Row:
    """Return the letter about a record that cannot be read, with its partition and offset."""
    return Row(source=letter.split, position=letter.position, raw=letter.text, error=letter.error)


class WithPayment(ProcessJoinFunction[Row, Row, Row]):
    """Makes a sale of an order and its payment, if it has one."""

    def process_element(
        self, left: Row, right: Row | None, ctx: ProcessJoinFunction.Context
    ) -> Iterator[Row]:
        method = None if right is None else right.method
        yield Row(customer=left.customer, method=method, cents=left.cents)


class WithCountry(ProcessJoinFunction[Row, Row, Row]):
    """Adds the country in which the customer lived at the time of the sale."""

    def process_element(
        self, left: Row, right: Row | None, ctx: ProcessJoinFunction.Context
    ) -> Iterator[Row]:
        yield Row(country="??" if right is None else right.country, method=left.method, cents=left.cents)


class Flag(KeyedBroadcastProcessFunction[str, Row, Row, Row]):
    """Counts the rules that a sale meets. A sale waits until all rules of its time are known."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._waiting = runtime_context.get_list_state(
            ListStateDescriptor("waiting", Types.TUPLE([NUMBER, PLACED_SALE]))
        )

    def process_broadcast_element(self, value: Row, ctx: KeyedBroadcastProcessFunction.Context) -> None:
        rules = ctx.get_broadcast_state(RULE_VERSIONS)
        versions = rules.get(value.rule) or []
        rules.put(value.rule, [*versions, (ctx.timestamp(), value.method, value.least)])

    def process_element(self, value: Row, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext) -> None:
        at = ctx.timestamp()
        assert at is not None
        self._waiting.add((at, value))
        ctx.timer_service().register_event_time_timer(at)

    def on_timer(self, timestamp: int, ctx: KeyedBroadcastProcessFunction.OnTimerContext) -> Iterator[Row]:
        waiting = list(self._waiting.get())
        self._waiting.update([(at, sale) for at, sale in waiting if at > timestamp])
        rules = [
            rule_at(timestamp, versions) for _, versions in ctx.get_broadcast_state(RULE_VERSIONS).items()
        ]
        for at, sale in waiting:
            if at <= timestamp:
                met = sum(method == sale.method and sale.cents >= least * 100 for method, least in rules)
                yield Row(country=sale.country, is_paid=sale.method is not None, cents=sale.cents, rules=met)


def rule_at(time: int, versions: Iterable[tuple[int, str | None, float | None]]) -> tuple[str, float]:
    """Return method and least amount of the version that holds at a time; no method has the name ""."""
    valid = [version for version in versions if version[0] <= time]
    if not valid:
        return "", 0.0
    _, method, least = max(valid, key=lambda version: version[0])
    return method or "", least or 0.0


class MinuteOfCountry(ProcessWindowFunction[Row, Row, str, Any]):
    """Adds up the sales of a country and minute."""

    def process(
        self, key: str, context: ProcessWindowFunction.Context[Any], elements: Iterable[Row]
    ) -> Iterator[Row]:
        sales = list(elements)
        paid = [sale for sale in sales if sale.is_paid]
        yield Row(
            country=key,
            minute=tables.clock_time(context.window().start),
            paid=len(paid),
            unpaid=len(sales) - len(paid),
            cents=sum(sale.cents for sale in paid),
            flagged=sum(sale.rules > 0 for sale in paid),
        )


class LastMinutes(KeyedProcessFunction[str, Row, Row]):
    """Passes each row on, and removes the one that is too old for the table."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._minutes = runtime_context.get_list_state(ListStateDescriptor("minutes", TEXT))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> Iterator[Row]:
        minutes = [*self._minutes.get(), value.minute]
        self._minutes.update(minutes[-KEPT_MINUTES:])
        yield value
        for minute in minutes[:-KEPT_MINUTES]:
            yield tables.removed(value.country, minute)


def topic(
    env: StreamExecutionEnvironment, servers: str, name: str, schema: DeserializationSchema[Any]
) -> DataStream:
    """Return the rows of a topic with the timestamps of their records, and letters about what cannot be read."""
    builder = KafkaSource.builder().set_bootstrap_servers(servers).set_topics(name).set_group_id(GROUP)
    builder.set_starting_offsets(KafkaOffsetsInitializer.earliest()).set_value_only_deserializer(schema)
    source: KafkaSource[Any] = builder.on_error("dead_letter", max_share=0.5).build()
    in_time = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(LATEST))
    return env.from_source(source, in_time, name).uid(name)


def turnover(servers: str) -> StreamExecutionEnvironment:
    """Return the program."""
    env = tables.program(parallelism=2)

    json = JsonRowDeserializationSchema.builder
    raw_orders = topic(env, servers, ORDERS, json().type_info(RAW_ORDER).build())
    csv = CsvRowDeserializationSchema.Builder(RAW_PAYMENT).set_field_delimiter(";").build()
    raw_payments = topic(env, servers, PAYMENTS, csv)
    customers = topic(env, servers, CUSTOMERS, json().type_info(CUSTOMER).build())
    rules = topic(env, servers, RULES, json().type_info(RULE).build())

    orders = raw_orders.process(NormalizeOrder(), ORDER).uid("normalize orders")
    payments = raw_payments.process(NormalizePayment(), PAYMENT).uid("normalize payments")
    # Heartbeats move event time on, and are no customers and no rules.
    known_customers = customers.filter(lambda row: row.customer is not None)
    known_rules = rules.filter(lambda row: row.rule is not None).broadcast(RULE_VERSIONS)

    sales = (
        orders.key_by(lambda row: row.order, NUMBER)
        .interval_join(payments.key_by(lambda row: row.order, NUMBER))
        .between(Time.seconds(0), Time.minutes(10))
        .left_outer()
        .process(WithPayment(), SALE)
        .uid("payments of orders")
    )
    placed = (
        sales.key_by(lambda row: row.customer, TEXT)
        .as_of_join(known_customers.key_by(lambda row: row.customer, TEXT))
        .backward()
        .left_outer()
        .process(WithCountry(), PLACED_SALE)
        .uid("countries of customers")
    )
    flagged = placed.key_by(lambda row: row.country, TEXT).connect(known_rules).process(Flag(), FLAGGED_SALE)
    minutes = (
        flagged.uid("flags")
        .key_by(lambda row: row.country, TEXT)
        .window(TumblingEventTimeWindows.of(Time.minutes(1)))
        .process(MinuteOfCountry(), tables.MINUTE)
        .uid("minutes")
    )
    rows = minutes.key_by(lambda row: row.country, TEXT).process(LastMinutes(), tables.MINUTE).uid("rows")
    rows.sink_to(tables.upserts(servers, tables.TURNOVER, tables.MinuteRecord())).uid("table")

    letters = orders.get_side_output(REJECTED).union(
        payments.get_side_output(REJECTED),
        *(
            stream.get_side_output(OutputTag(DEAD_LETTERS)).map(unreadable, tables.DEAD_LETTER)
            for stream in (raw_orders, raw_payments, customers, rules)
        ),
    )
    letters.sink_to(tables.dead_letters(servers)).uid("dead letters")
    return env


def start(servers: str) -> JobClient:
    """Start the job and return at once."""
    return turnover(servers).execute_async("turnover")


if __name__ == "__main__":
    turnover(sys.argv[1]).execute("turnover")
