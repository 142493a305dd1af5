"""Yarrow's own programs, each against the limit of its kind and the peers, with the goals of docs/performance.md."""

from __future__ import annotations

from bench.case import PYTHON, ROOT, Case, Measure, Program, engine
from bench.peers import programs


def rows(job: str, sizes: tuple[int, int], *options: str) -> Program:
    name = " ".join(["Yarrow,", job, *(option.removeprefix("--") for option in options)])
    return engine("rows.py", "--job", job, *options, name=name, sizes=sizes, quick=200_000)


def columnar(keys: int, batch: int, sizes: tuple[int, int]) -> Program:
    options = ("--keys", str(keys), "--batch", str(batch))
    name = f"Yarrow, columnar, {keys} keys, {batch} rows"
    return engine("columnar.py", *options, name=name, sizes=sizes, quick=5_000_000)


def reporting(script: str, size: int, quick: int, *, module: bool = True) -> Program:
    name = f"Yarrow, {script.removesuffix('.py').replace('_', ' ')}"
    return engine(script, name=name, sizes=(size,), quick=quick, module=module)


def word_count(_size: int) -> list[str]:
    return [PYTHON, str(ROOT / "examples" / "word_count.py"), "--input", str(ROOT / "LICENSE")]


INTEGERS = rows("integers", (2_000_000, 12_000_000))
UNDECLARED = rows("undeclared", (2_000_000, 12_000_000))
# The sizes of the bare loop: all keys are there after 2 M records, and what counts is the rest.
STRINGS = rows("strings", (2_000_000, 10_000_000))
ORDERS = rows("orders", (200_000, 1_200_000))
OVER_TCP = rows("integers", (2_000_000, 12_000_000), "--tcp")
CHAIN = rows("chain", (4_000_000, 24_000_000))
REBALANCE = rows("rebalance", (2_000_000, 12_000_000))


#: The start of a job differs by half a second between runs, so that 600 000 calls in three seconds were too few.
_ASYNC_SIZES = (100_000, 2_100_000)


def async_calls(*options: str) -> Program:
    name = " ".join(["Yarrow, asynchronous calls", *(option.removeprefix("--") for option in options)])
    return engine("async_calls.py", *options, name=name, sizes=_ASYNC_SIZES, quick=20_000, module=True)


ASYNC_CALLS, ASYNC_CALLS_ORDERED = async_calls(), async_calls("--ordered")
COLUMNAR = columnar(1000, 65_536, (10_000_000, 100_000_000))
COLUMNAR_16K = columnar(1000, 16_384, (10_000_000, 60_000_000))
COLUMNAR_MANY = columnar(1_000_000, 65_536, (10_000_000, 60_000_000))

KEYED_ROWS = Case(
    "keyed-rows",
    INTEGERS,
    (programs.BARE_INTEGERS, *programs.BYTEWAX, programs.PYFLINK),
    at_least=(
        (programs.BARE_INTEGERS.name, 0.6),
        *((peer.name, 5.0) for peer in programs.BYTEWAX),
        (programs.PYFLINK.name, 100.0),
    ),
)
KEYED_COLUMNS = Case(
    "keyed-columns",
    COLUMNAR,
    (programs.BARE_COLUMNAR_64K, *programs.FLINK_SQL),
    at_least=((programs.BARE_COLUMNAR_64K.name, 0.5), *((peer.name, 15.0) for peer in programs.FLINK_SQL)),
)
LATENCY = Case("latency", reporting("latency.py", 8, 3, module=False), measure=Measure.REPORTED, at_most=20.0)
SLOW_SINK = Case("slow-sink", reporting("slow_sink.py", 60, 16), measure=Measure.REPORTED, at_most=8.0)
SLOW_MAP = Case("slow-map", reporting("slow_map.py", 25, 2), measure=Measure.REPORTED, at_most=50.0)
FIXED_POLLS = Case("fixed-polls", reporting("fixed_polls.py", 4, 1, module=False), measure=Measure.REPORTED)
SCHEDULING = Case("scheduling", reporting("scheduling.py", 1000, 200), measure=Measure.REPORTED, at_most=5.0)
IDLE = Case("idle-memory", reporting("idle.py", 4, 1), measure=Measure.REPORTED, at_most=140.0)
START = Case(
    "start-up", Program("Yarrow, word count", word_count, (1,)), measure=Measure.SECONDS, at_most=2.5
)

CASES = [
    KEYED_ROWS,
    Case("keyed-rows-undeclared", UNDECLARED, (programs.BARE_INTEGERS,)),
    Case("keyed-rows-tcp", OVER_TCP, (programs.BARE_INTEGERS,)),
    Case("keyed-strings", STRINGS, (programs.BARE_STRINGS,), at_least=((programs.BARE_STRINGS.name, 0.9),)),
    Case("keyed-orders", ORDERS, (programs.BARE_ORDERS,), at_least=((programs.BARE_ORDERS.name, 0.6),)),
    KEYED_COLUMNS,
    Case("keyed-columns-16k", COLUMNAR_16K, (programs.BARE_COLUMNAR_16K,)),
    Case(
        "keyed-columns-1m",
        COLUMNAR_MANY,
        (programs.BARE_COLUMNAR_MANY_64K,),
        at_least=((programs.BARE_COLUMNAR_MANY_64K.name, 0.5),),
    ),
    Case(
        "async-calls",
        ASYNC_CALLS,
        (programs.BARE_ASYNC,),
        at_least=((programs.BARE_ASYNC.name, 1.1),),
        paired=True,
    ),
    Case(
        "async-calls-ordered",
        ASYNC_CALLS_ORDERED,
        (programs.BARE_ASYNC,),
        at_least=((programs.BARE_ASYNC.name, 1.0),),
        paired=True,
    ),
    Case("chain", CHAIN),
    Case("rebalance", REBALANCE),
    LATENCY,
    START,
    IDLE,
    SCHEDULING,
    SLOW_MAP,
    SLOW_SINK,
    FIXED_POLLS,
]
