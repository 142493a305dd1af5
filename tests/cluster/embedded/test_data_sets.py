"""`python program.py` with the DataSet API, as users run it; the input is small, so the jobs run without Java."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.cluster.embedded.programs import Program
from tests.cluster.embedded.waiting import wait_until
from tests.support.free_ports import free_port

pytestmark = pytest.mark.cluster

#: Seconds that a program with several jobs may take on a busy machine.
LIMIT = 600.0
_HEAD = """
from yarrow.batch.dataset import Aggregations, ExecutionEnvironment, WriteMode
from yarrow.common import Types
from yarrow.common.configuration import Configuration
env = ExecutionEnvironment.get_execution_environment(
    Configuration.from_dict({"execution.runtime-mode": "AUTOMATIC", "parallelism.default": "2"})
)
"""

_FILES = (
    _HEAD
    + """
pairs = env.read_csv_file("in.csv").ignore_first_line().include_fields("101").types(Types.STRING(), Types.LONG())
sums = pairs.group_by(0).sum(1)
print(sums.count(), env.get_last_job_execution_result().get_net_runtime() >= 0)
named = Types.ROW_NAMED(["name", "total"], [Types.STRING(), Types.LONG()])
from yarrow.common.types import Row
rows = sums.map(lambda pair: Row(name=pair[0], total=pair[1]), named)
rows.write_as_json("json")
rows.write_as_parquet("parquet")
sums.write_as_csv("csv", field_delimiter=";").set_parallelism(1)
sums.write_as_text("text", WriteMode.OVERWRITE)
sums.write_as_formatted_text("formatted", lambda pair: f"{pair[0]}={pair[1]}")
env.execute("files")
again = env.read_json_file("json", named).map(lambda row: (row.name, row["total"]))
print(sorted(again.collect()))
env.read_parquet_file("parquet", named).map(lambda row: (row.name, row.total)).print()
"""
)


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def lines(folder: Path) -> list[str]:
    return sorted(line for path in files(folder) for line in path.read_text().splitlines())


def test_files_in_all_formats_are_read_and_written(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text('name,ignored,number\n"a;b",x,1\nc,y,2\n"a;b",z,3\n')
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "old").write_text("old")
    program = Program(tmp_path, _FILES)
    program.limit = LIMIT
    outcome = program.wait()
    assert outcome.status == 0, outcome
    counted, collected, *printed = outcome.out.splitlines()
    assert counted == "2 True"
    assert collected == "[('a;b', 4), ('c', 2)]"
    assert sorted(printed) == ["('a;b', 4)", "('c', 2)"]
    assert lines(tmp_path / "text") == ["('a;b', 4)", "('c', 2)"]
    assert lines(tmp_path / "formatted") == ["a;b=4", "c=2"]
    assert [json.loads(line) for line in lines(tmp_path / "json")] == [
        {"name": "a;b", "total": 4},
        {"name": "c", "total": 2},
    ]
    (written,) = files(tmp_path / "csv")
    with written.open() as opened:
        assert sorted(csv.reader(opened, delimiter=";")) == [["a;b", "4"], ["c", "2"]]
    found = [row for path in files(tmp_path / "parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted(found, key=str) == [{"name": "a;b", "total": 4}, {"name": "c", "total": 2}]


_REPLACED = (
    _HEAD
    + """
numbers = env.read_text_file("out").map(int, Types.LONG())
replaced = numbers.map(lambda n: str(PLUS(n)), Types.STRING())
replaced.write_as_text("out", WriteMode.OVERWRITE)
env.execute("replace")
"""
)


@pytest.mark.parametrize(
    ("function", "environment", "status", "left"),
    [
        ("(lambda n: n + 1)", {}, 0, ["2", "3"]),
        ("(lambda n: 1 // (n - 2))", {}, 1, ["1", "2"]),
        ("(lambda n: n + 1)", {"execution.target": "remote", "rest.address": "localhost"}, 1, ["1", "2"]),
    ],
    ids=["finished", "failed", "no cluster"],
)
def test_only_a_job_that_finishes_replaces_files(
    tmp_path: Path, function: str, environment: dict[str, str], status: int, left: list[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old").write_text("1\n2\n")
    (tmp_path / "conf").mkdir()
    # Nobody listens at the port that was just chosen.
    settings = {**environment, "rest.port": str(free_port())} if environment else {"rest.port": "0"}
    text = "".join(f"{key}: {value}\n" for key, value in settings.items())
    (tmp_path / "conf" / "config.yaml").write_text(text)
    program = Program(tmp_path, _REPLACED.replace("PLUS", function), YARROW_CONF_DIR=str(tmp_path / "conf"))
    program.limit = LIMIT
    outcome = program.wait()
    assert outcome.status == status, outcome
    if environment:
        assert "No REST server answers at" in outcome.err
    assert lines(tmp_path / "out") == left
    assert (tmp_path / "out" / "old").exists() == (status != 0)


def test_a_failing_function_is_told_first(tmp_path: Path) -> None:
    failed = Program(
        tmp_path, _HEAD + "env.from_elements(1, 0).map(lambda n: 1 // n).name('inverse').print()"
    )
    failed.limit = LIMIT
    outcome = failed.wait()
    assert outcome.status == 1
    assert "ZeroDivisionError" in outcome.err and "inverse" in outcome.err


_STAYING = (
    _HEAD
    + """
import pathlib, threading
begun = pathlib.Path("begun").absolute()
def stay(row):
    begun.touch()
    threading.Event().wait()
    return row
pairs = env.generate_sequence(1, 100).map(lambda n: (n % 10, n), Types.TUPLE([Types.LONG(), Types.LONG()]))
pairs.group_by(0).sum(1).map(stay).name("stays").write_as_text("out")
env.execute("data sets")
"""
)


def test_rest_shows_and_cancels_a_program_as_any_job(tmp_path: Path) -> None:
    begun = Program(tmp_path, _STAYING)
    begun.limit = LIMIT

    def stays() -> bool:
        assert begun.process.poll() is None, begun.wait()
        return (tmp_path / "begun").exists()

    wait_until(stays, lambda: "the function did not begin")
    begun.processes()
    ask = begun.rest(LIMIT)

    (job,) = ask("/jobs/overview")["jobs"]
    assert (job["name"], job["state"], job["jobType"]) == ("data sets", "RUNNING", "BATCH")
    details = ask(f"/jobs/{job['jid']}")
    assert details["batch-runner"] == "LOCAL"
    (staying,) = [vertex for vertex in details["vertices"] if "stays" in vertex["name"]]
    assert staying["name"].endswith("Data Sink: Writer")

    def runs() -> bool:
        return bool(ask(f"/jobs/{job['jid']}/vertices/{staying['id']}")["subtasks"][0]["status"] == "RUNNING")

    wait_until(runs, lambda: "REST does not show that the task runs")
    assert {vertex["id"] for vertex in details["vertices"]} == {
        node["id"] for node in details["plan"]["nodes"]
    }
    ask(f"/jobs/{job['jid']}?mode=cancel", "PATCH")
    outcome = begun.wait()
    assert outcome.status == 1
    assert "was cancelled" in outcome.err
    # What its sinks had begun is gone too.
    assert files(tmp_path / "out") == []
    begun.assert_nothing_left()
