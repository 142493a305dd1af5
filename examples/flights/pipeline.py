"""The delays of carriers as a pipeline of Spark stages: `yarrow run examples/flights/pipeline.py`.

Two stages read side by side, a third joins what they leave, and a function of Python runs in Spark's tasks.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from yarrow.batch import Pipeline, StageFiles, StageTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHTS = """carrier,day,delay
AA,2013-12-01,12
AA,2013-12-02,-3
UA,2013-12-01,40
UA,2013-12-01,20
DL,2013-12-02,
"""
CARRIERS = """carrier,name
AA,American
DL,Delta
UA,United
"""


def flights_of_day(spark: SparkSession, flights: DataFrame, *, day: str) -> DataFrame:
    """The flights of a day that have a delay."""
    return flights.where((F.col("day") == day) & F.col("delay").isNotNull()).select("carrier", "delay")


def carriers(spark: SparkSession, carrier_files: str) -> DataFrame:
    """The names of carriers, in capitals."""
    capitals = F.udf(str.upper, "string")
    read = spark.read.csv(f"file://{carrier_files}", header=True)
    return read.select("carrier", capitals("name").alias("name"))


def report(spark: SparkSession, of_day: DataFrame, names: DataFrame) -> DataFrame:
    """Flights and mean delay of each carrier."""
    delays = of_day.groupBy("carrier").agg(F.count("*").alias("flights"), F.avg("delay").alias("delay"))
    return delays.join(names, "carrier").select("name", "flights", "delay")


def pipeline_in(folder: Path, day: str) -> Pipeline:
    """The pipeline over the files in a folder; the report of each day has a folder of its own there."""
    pipeline = Pipeline("delays by carrier", parameters={"day": day})
    pipeline.read(
        StageTable(
            "flights", "carrier string, day date, delay int", f"{folder}/flights", "csv", {"header": "true"}
        ),
        StageFiles("carrier_files", f"{folder}/carriers"),
    )
    pipeline.stage(
        "flights of the day",
        flights_of_day,
        inputs=["flights"],
        outputs=StageTable("of_day", "carrier string, delay int"),
    )
    pipeline.stage(
        "carriers",
        carriers,
        inputs=["carrier_files"],
        outputs=StageTable("names", "carrier string, name string"),
    )
    pipeline.stage(
        "report",
        report,
        inputs=["of_day", "names"],
        outputs=StageTable(
            "report", "name string, flights bigint, delay double", f"{folder}/report-{{day}}", "json"
        ),
        retries=1,
    )
    return pipeline


def main(folder: Path, day: str = "2013-12-01") -> None:
    """Writes the example's files, runs the pipeline, and prints the report."""
    for name, text in (("flights", FLIGHTS), ("carriers", CARRIERS)):
        (folder / name).mkdir()
        (folder / name / "part.csv").write_text(text)
    pipeline_in(folder, day).execute()
    for part in sorted((folder / f"report-{day}").glob("part-*")):
        sys.stdout.write(part.read_text())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        main(Path(temporary))
