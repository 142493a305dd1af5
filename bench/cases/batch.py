"""Bounded programs on Spark against hand-written PySpark ones: the second of two runs of a plan in one Spark session.

Rates are those that the programs report, with the first run and a cold start beside them. Flights are whole processes.
"""

from __future__ import annotations

from pathlib import Path

from bench.case import PYTHON, ROOT, Case, Measure, Program, engine, module_peer


def batch(job: str, size: int, *options: str, quick: int = 100_000) -> Program:
    name = " ".join(["Yarrow on Spark,", job, *(option.removeprefix("--") for option in options)])
    return engine("batch.py", "--job", job, *options, name=name, sizes=(size,), quick=quick, module=True)


def data_sets(job: str, size: int, *options: str, quick: int) -> Program:
    name = " ".join(["Yarrow's DataSets on Spark,", job, *(option.removeprefix("--") for option in options)])
    return engine("data_sets.py", "--job", job, *options, name=name, sizes=(size,), quick=quick, module=True)


def spark(script: str, form: str, size: int, *options: str, quick: int = 100_000) -> Program:
    return module_peer(script, *options, name=f"PySpark, {form}", sizes=(size,), quick=quick)


def flights(_size: int) -> list[str]:
    program = str(ROOT / "examples" / "flights" / "delays.py")
    return [str(Path(PYTHON).with_name("yarrow")), "run", "-Dexecution.runtime-mode=BATCH", program]


RECORDS = 10_000_000
ROWS = 50_000_000
_MANY = "--keys=1000000"
_GROUPS = "--keys=100000"

REDUCE = batch("reduce", RECORDS)
REDUCE_MANY = batch("reduce", RECORDS, _MANY)
PROCESS = batch("process", RECORDS, _GROUPS)
COLUMNS = batch("columns", ROWS)
MAPPED_COLUMNS = batch("mapped-columns", ROWS)
ONE_KEY = batch("one-key", 5_000_000, "--runs=1", "--memory")
GROUPED = data_sets("reduce", RECORDS, quick=100_000)
GROUPED_MANY = data_sets("reduce", RECORDS, _MANY, quick=100_000)
ROUNDS = data_sets("rounds", 20_000, quick=1000)
COMPONENTS = data_sets("components", 1_000_000, quick=10_000)
FLIGHTS = Program("Yarrow on Spark, flights", flights, (1,))


def savepoint(job: str, name: str, *options: str) -> Program:
    return engine(
        "savepoint_frames.py",
        f"--job={job}",
        *options,
        name=name,
        sizes=(RECORDS,),
        quick=100_000,
        module=True,
    )


SAVEPOINT = savepoint("write", "Yarrow, DataFrame to a savepoint")
SAVEPOINT_BY_ROWS = savepoint("write", "the same without Spark's limit of bytes", "--no-byte-limit")
SAVEPOINT_READ = savepoint("read", "Yarrow, savepoint to a DataFrame, with a sum")
SAVEPOINT_READER = savepoint("reader", "SavepointReader in one process, with a sum")
PARQUET = savepoint("parquet", "PySpark, the same rows as Parquet")

RDD_REDUCE = spark("spark_rows", "reduceByKey", RECORDS)
RDD_IDIOMATIC = spark("spark_rows", "idiomatic reduceByKey", RECORDS, "--job=idiomatic")
RDD_REDUCE_MANY = spark("spark_rows", "reduceByKey, 1 M keys", RECORDS, _MANY)
RDD_PROCESS = spark("spark_rows", "groupByKey and a loop", RECORDS, "--job=process", _GROUPS)
DATAFRAME = spark("spark_columns", "DataFrame", ROWS)
MAP_IN_ARROW = spark("spark_columns", "mapInArrow", ROWS, "--mapped")
FLIGHTS_SCRIPT = module_peer("spark_flights", name="PySpark, flights", sizes=(1,))


def against(name: str, program: Program, peer: Program, least: float, *others: Program) -> Case:
    return Case(name, program, (peer, *others), measure=Measure.REPORTED, at_least=((peer.name, least),))


CASES = [
    against("batch-reduce", REDUCE, RDD_REDUCE, 2.0, RDD_IDIOMATIC),
    against("batch-reduce-1m", REDUCE_MANY, RDD_REDUCE_MANY, 1.2),
    against("batch-process", PROCESS, RDD_PROCESS, 0.8),
    against("batch-columns", COLUMNS, DATAFRAME, 0.95),
    against("batch-map-batches", MAPPED_COLUMNS, MAP_IN_ARROW, 0.9),
    Case(
        "batch-flights",
        FLIGHTS,
        (FLIGHTS_SCRIPT,),
        measure=Measure.SECONDS,
        at_most_of=((FLIGHTS_SCRIPT.name, 1.3),),
    ),
    # At most 2.5 times its time.
    against("batch-savepoint", SAVEPOINT, PARQUET, 0.4, SAVEPOINT_BY_ROWS),
    against("batch-read-savepoint", SAVEPOINT_READ, SAVEPOINT_READER, 1.6),
    Case("batch-one-key", ONE_KEY, measure=Measure.REPORTED, at_most=512.0),
    against("data-set-reduce", GROUPED, RDD_REDUCE, 1.0, RDD_IDIOMATIC),
    against("data-set-reduce-1m", GROUPED_MANY, RDD_REDUCE_MANY, 1.0),
    Case("data-set-rounds", ROUNDS, measure=Measure.REPORTED, at_most=1.2),
    Case("data-set-components", COMPONENTS, measure=Measure.REPORTED),
]
