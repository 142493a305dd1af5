"""`yarrow run --history-until` over a small year of flights: eleven months on Spark, then December as a stream.

Each row equals the stream over the whole year, also where the SparkDriver of the history is killed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.embedded.programs import Program
from tests.cluster.embedded.waiting import wait_until
from tests.spark.test_driver_process import left_of
from tests.support.process_names import command_of
from tests.support.small_year import DECEMBER, FLIGHTS, LIMIT, PROGRAM, SmallYear, rows_of, small_year

pytestmark = pytest.mark.spark
#: The example with a function that waits in the history for a file, and says so in another one.
GATED = f"""
import sys, time
from pathlib import Path

sys.path.insert(0, {str(FLIGHTS)!r})
import year

class Gated(year.ByCarrier):
    def process_element(self, value, ctx):
        while value.time < {DECEMBER} and not Path("gate").exists():
            Path("reached").touch()
            time.sleep(0.05)
        return super().process_element(value, ctx)

year.ByCarrier = Gated
year.main()
"""


@pytest.fixture(scope="module")
def year(tmp_path_factory: pytest.TempPathFactory) -> SmallYear:
    return small_year(tmp_path_factory.mktemp("packages"), 100)


def begin(folder: Path, year: SmallYear, program: Path, *settings: str, text: str = "") -> Program:
    """The one command."""
    made = f"execution.checkpointing.savepoint-dir={folder / 'made'}"
    flags = ("--history-until", "2013-12-01", *(f"-D{setting}" for setting in (made, *settings)))
    command = ("-m", "yarrow.cli.main", "run", *flags, str(program))
    begun = Program(folder, text, *command, **year.variables)
    begun.limit = LIMIT
    return begun


def assert_one_whole_savepoint(folder: Path) -> None:
    (savepoint,) = (folder / "made").iterdir()
    assert (savepoint / "_metadata").exists()
    assert not list(savepoint.glob("_tmp-*")), "the marker is gone"


def test_eleven_months_and_december_equal_the_stream_over_the_year(tmp_path: Path, year: SmallYear) -> None:
    outcome = begin(tmp_path, year, PROGRAM).wait()
    assert outcome.status == 0, outcome.err
    assert rows_of(outcome.out) == year.rows
    assert "History of 'flights with weather' is in the savepoint" in outcome.err
    assert_one_whole_savepoint(tmp_path)


def test_a_killed_driver_costs_another_run_and_no_row(tmp_path: Path, year: SmallYear) -> None:
    restarts = (
        "restart-strategy.type=fixed-delay",
        "restart-strategy.fixed-delay.attempts=3",
        "restart-strategy.fixed-delay.delay=100 ms",
        "execution.history.output=DROP",
    )
    begun = begin(tmp_path, year, tmp_path / "job.py", *restarts, text=GATED)
    reached = tmp_path / "reached"

    def until_reached() -> None:
        def is_reached() -> bool:
            assert begun.process.poll() is None, begun.wait()
            return reached.exists()

        wait_until(is_reached, lambda: "the history did not begin", LIMIT)

    until_reached()
    (driver,) = (each for each in begun.processes() if "driver_main" in command_of(each))
    (savepoint,) = (tmp_path / "made").iterdir()
    assert list(savepoint.glob("_tmp-*")) and not (savepoint / "_metadata").exists()
    killed = [driver, *driver.children(recursive=True)]
    driver.kill()
    assert left_of(killed) == []
    reached.unlink()
    until_reached()
    (tmp_path / "gate").touch()
    outcome = begun.wait()
    assert outcome.status == 0, outcome.err
    assert rows_of(outcome.out) == year.december
    assert_one_whole_savepoint(tmp_path)
    begun.assert_nothing_left()
