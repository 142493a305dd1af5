"""What user functions log reaches the client of `python job.py`, whose `logging` decides what becomes of it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.embedded.programs import run
from yarrow.embedded.mini_cluster import mini_cluster

pytestmark = pytest.mark.cluster

_PROGRAM = """
import logging
from yarrow.common import Configuration
from yarrow.datastream import MapFunction, ProcessFunction, StreamExecutionEnvironment

SETUP

env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({
    "execution.in-process": "IN_PROCESS",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1",
    "restart-strategy.fixed-delay.delay": "0 s",
}))
env.set_parallelism(1)
log = logging.getLogger("job")

class Parse(MapFunction):
    def open(self, context):
        self.attempt = context.get_attempt_number()
        log.warning("parse opens")

    def map(self, value):
        log.info("row %d", value)
        log.debug("a line that nobody wants %r", Costly())
        if value == 2 and self.attempt == 0:
            log.error("fails soon", exc_info=LookupError("row two"))
            print("printed before the failure", flush=True)
            raise ValueError("no such row")
        return value

class Costly:
    def __repr__(self):
        print("repr of a line that nobody wants", flush=True)
        return "costly"

class Last(ProcessFunction):
    def process_element(self, value, context):
        if value == 3:
            log.warning("last row")
        yield value

env.from_sequence(1, 3).map(Parse()).name("parse").process(Last()).name("last").print()
env.execute("logs")
log.warning("execute has returned")
"""


def program(setup: str = "", in_process: bool = False) -> str:
    """The program with some lines that set its logging up."""
    return _PROGRAM.replace("SETUP", setup).replace("IN_PROCESS", str(in_process).lower())


def test_unset_warnings_go_to_stderr_with_the_survived_failure_between(tmp_path: Path) -> None:
    outcome = run(tmp_path, program())
    assert outcome.status == 0, outcome.err
    assert outcome.out.splitlines() == ["1", "printed before the failure", "1", "2", "3"]
    lines = outcome.err.splitlines()
    assert lines[:3] == ["parse opens", "fails soon", "LookupError: row two"]
    restart = lines[3]
    assert restart.startswith(
        "the job 'logs' restarts 1 of its tasks in 0 s, after a failure in operator 'parse' of"
    )
    assert restart.endswith("(1/1)' at the record 2: ValueError: no such row")
    assert lines[4] == "Traceback (most recent call last):"
    assert "job.py" in lines[5] and lines[5].endswith("in map")
    assert "ValueError: no such row" in lines
    assert lines[-3:] == ["parse opens", "last row", "execute has returned"]


_HANDLER = """
handler = logging.FileHandler("all.log")
handler.setFormatter(logging.Formatter("%(levelname)s %(operator)s %(subtask)s %(funcName)s: %(message)s",
                     defaults={"operator": "client", "subtask": "-"}))
logging.getLogger("job").addHandler(handler)
logging.getLogger("job").setLevel(logging.INFO)
"""


def test_handlers_and_levels_of_the_client_decide(tmp_path: Path) -> None:
    outcome = run(tmp_path, program(_HANDLER))
    assert outcome.status == 0, outcome.err
    assert "parse opens" not in outcome.err
    # Of the other form nothing is made: its line was not wanted, and did not travel.
    assert "repr" not in outcome.out
    attempt = ["WARNING parse 0 open: parse opens", "INFO parse 0 map: row 1", "INFO parse 0 map: row 2"]
    assert (tmp_path / "all.log").read_text().splitlines() == [
        *attempt,
        "ERROR parse 0 map: fails soon",
        "LookupError: row two",
        *attempt,
        "INFO parse 0 map: row 3",
        "WARNING last 0 process_element: last row",
        "WARNING client - <module>: execute has returned",
    ]


@pytest.mark.parametrize("in_process", [False, True], ids=["processes", "threads"])
def test_nothing_that_is_logged_before_a_job_fails_is_lost(tmp_path: Path, in_process: bool) -> None:
    text = program(in_process=in_process).replace('env.execute("logs")', "").replace('"1",', '"0",')
    text += """
try:
    env.execute("fails")
except Exception as error:
    log.warning("then execute raises %s", type(error).__name__)
"""
    outcome = run(tmp_path, text)
    assert outcome.status == 0, outcome.err
    lines = outcome.err.splitlines()
    assert [line for line in lines if line != "execute has returned"] == [
        "parse opens",
        "fails soon",
        "LookupError: row two",
        "then execute raises JobExecutionError",
    ]


def test_levels_are_those_of_the_client_at_each_execute(caplog: pytest.LogCaptureFixture) -> None:
    name = "levels_of_each_job"

    def log(value: int) -> list[bool]:
        import logging as of_the_worker

        logger = of_the_worker.getLogger(name)
        logger.debug("row %d", value)
        return [logger.isEnabledFor(level) for level in (10, 20, 30)]

    def wanted(cluster: Any) -> list[list[bool]]:
        env = cluster.get_execution_environment()
        return list(env.from_collection([1]).map(log).execute_and_collect())

    with mini_cluster() as cluster:
        # The TaskExecutor has started with the levels of now.
        assert wanted(cluster) == [[False, False, True]]
        with caplog.at_level(logging.DEBUG, logger=name):
            assert wanted(cluster) == [[True, True, True]]
        with caplog.at_level(logging.CRITICAL, logger=name):
            assert wanted(cluster) == [[False, False, False]]
    assert [record.getMessage() for record in caplog.records if record.name == name] == ["row 1"]
