"""Bounded jobs on a real YARN: the SparkDriver in a container of its own, which ends with its job however that ends.

Jobs of a session share it; a test whose fault ends the application has one of its own.
"""

from __future__ import annotations

import os
import re
import signal
import urllib.request
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import parse_qsl, urldefrag, urljoin, urlsplit

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.small_year import FLIGHTS, PROGRAM, rows_of, small_year
from tests.yarn.batch.bounded_jobs import (
    CONFIGURATION,
    MASTER,
    ROWS,
    Application,
    Output,
    bounded_session,
    write_programs,
)
from tests.yarn.commands import Commands, commands_in, end, read_until
from tests.yarn.highly_available import high_availability, zookeeper_client
from tests.yarn.waiting import GRACE, until
from yarrow.client.yarn.abandoned_files import remove_abandoned
from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor
from yarrow.runtime.config.settings import Settings
from yarrow.testing.transactional_files import CommittedFiles

#: Of each log that is searched for printed rows.
LOG_BYTES = 1_000_000
ROOT = f"/yarrow-batch-{os.getpid()}"


@pytest.fixture(scope="module")
def session(hadoop: HadoopCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """A session for the tests whose faults it survives."""
    folder = tmp_path_factory.mktemp("session")
    write_programs(folder)
    with bounded_session(hadoop, folder, CONFIGURATION, "batch") as started:
        yield started


@pytest.fixture
def alone(hadoop: HadoopCluster, hdfs_folder: str, tmp_path: Path) -> Iterator[Commands]:
    """Commands for applications of a test's own."""
    write_programs(tmp_path)
    with commands_in(hadoop, tmp_path, CONFIGURATION) as yarrow:
        yield yarrow


def begun(session: Application, output: Output) -> str:
    """A job of SUMS whose tasks run, and wait; its id."""
    job = session.yarrow.ok("run", "-d", "-yid", session.id, "sums.py", *output.arguments).job
    session.yarrow.eventually(lambda: output.is_waiting, "its tasks run")
    return job


def test_a_job_runs_in_a_container_of_its_own_which_goes_with_it(
    session: Application, output: Output
) -> None:
    output.open_gate()
    done = session.yarrow.ok("run", "-yid", session.id, "sums.py", *output.arguments)
    assert "has finished" in done.out
    output.assert_exact()
    details = session.get(f"/jobs/{done.job}")
    assert details["job-type"] == "BATCH" and details["spark-application"].startswith("local-")
    session.until_driver_is_gone()
    logs = session.yarrow.hadoop.container_logs(session.id)
    assert any(name.endswith("sparkdriver.log") for name in logs)
    assert any(name.endswith("sparkdriver-spark.log") for name in logs)


def test_a_pipeline_leaves_rows_on_hdfs_and_spark_sql_reads_them_there(
    session: Application, hdfs_folder: str, tmp_path: Path
) -> None:
    # Stages name HDFS by what Hadoop's configuration calls the default.
    session.yarrow.ok("run", "-yid", session.id, "stages.py", f"{urlsplit(hdfs_folder).path}/rows")
    done = session.yarrow.ok(
        "run", "-yid", session.id, "columns.py", f"{hdfs_folder}/rows", str(tmp_path / "sums")
    )
    assert sorted(CommittedFiles(tmp_path / "sums").rows()) == [(key, total * 2) for key, total in ROWS]
    # Python saw a row of each key, and none of the files.
    source, *_ = session.get(f"/jobs/{done.job}")["vertices"]
    assert source["metrics"]["read-records"] == len(ROWS)


def test_a_functions_error_is_the_users_own_and_the_driver_ends(session: Application) -> None:
    outcome = session.yarrow("run", "-yid", session.id, "broken_batch.py")
    assert outcome.status == 1
    assert "ZeroDivisionError" in outcome.err and "divide" in outcome.err
    assert "pyspark" not in outcome.err and "org.apache" not in outcome.err
    session.until_driver_is_gone()


def test_a_killed_driver_is_replaced(session: Application, output: Output) -> None:
    job = begun(session, output)
    (first,) = session.drivers()
    output.forget_waiting()
    os.kill(first, signal.SIGKILL)
    session.yarrow.eventually(lambda: output.is_waiting, "the next driver runs it from its beginning")
    assert first not in session.drivers()
    (failure, *_) = session.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
    assert "SparkDriver" in failure["stacktrace"]
    output.open_gate()
    session.yarrow.eventually(lambda: session.status(job) == "FINISHED", "it finishes")
    output.assert_exact()
    session.until_driver_is_gone()


class Links(HTMLParser):
    """The addresses that a page names, as a browser resolves them."""

    def __init__(self, address: str) -> None:
        super().__init__()
        self._address = address
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = {name: value for name, value in attrs if value is not None}
        for name in ("href", "src"):
            if not named.get(name, "#").startswith(("#", "javascript:", "data:")):
                self.found.add(urldefrag(urljoin(self._address, named[name])).url)


def named_page(link: str) -> str:
    """The page of a link, whatever the order of its tables: the path, and the number of a job or a stage."""
    parts = urlsplit(link)
    number = [f"?id={value}" for name, value in parse_qsl(parts.query) if name == "id"]
    return parts.path + "".join(number)


def looked_at(address: str) -> tuple[str, str, str]:
    """Where a browser ends that opens an address, with the media type and the text that it gets."""
    # Spark writes spaces into its links, which browsers escape.
    with urllib.request.urlopen(address.replace(" ", "%20"), timeout=120) as answer:
        return answer.url, answer.headers.get_content_type(), answer.read().decode(errors="replace")


def test_links_of_sparks_pages_work_through_yarns_proxy(
    session: Application, output: Output, hadoop: HadoopCluster
) -> None:
    job = begun(session, output)
    page = session.get(f"/jobs/{job}")["spark-pages"].removeprefix("/")
    proxy = f"{hadoop.resource_manager_web}/proxy/{session.id}/"
    first = f"{proxy}pages/yarrow/{page}"
    media_types: dict[str, str] = {}
    waiting = {named_page(first): first}
    while waiting:
        name, asked = waiting.popitem()
        address, media_types[name], text = looked_at(asked)
        if media_types[name] == "text/html":
            links = Links(address)
            links.feed(text)
            elsewhere = {link for link in links.found if not link.startswith(first)}
            assert all(urlsplit(link).hostname == "spark.apache.org" for link in elsewhere), (
                asked,
                elsewhere,
            )
            found = {named_page(link): link for link in links.found - elsewhere}
            waiting |= {name: link for name, link in found.items() if name not in media_types}
    pages = {name.removeprefix(named_page(first)) for name in media_types}
    assert {
        "",
        "jobs/",
        "stages/",
        "storage/",
        "environment/",
        "executors/",
        "SQL/",
        "jobs/job/?id=0",
    } <= pages
    assert {"text/css", "text/html"} <= {*media_types.values()}
    session.yarrow.ok("cancel", "-yid", session.id, job)
    session.until_driver_is_gone()


def test_a_cancelled_job_ends_its_driver(session: Application, output: Output) -> None:
    job = begun(session, output)
    session.yarrow.ok("cancel", "-yid", session.id, job)
    session.yarrow.eventually(lambda: session.status(job) == "CANCELED", "it is cancelled")
    session.until_driver_is_gone()
    assert not output.folder.exists() or CommittedFiles(output.folder).rows() == []


def test_a_history_on_hdfs_and_its_stream_equal_the_stream(
    session: Application, hdfs_folder: str, tmp_path: Path
) -> None:
    """A small year of flights: eleven months in a driver's container, then December in TaskExecutors."""
    year = small_year(tmp_path, 300)
    done = session.yarrow.ok(
        *("run", "-yid", session.id, "--history-until", "2013-12-01"),
        *("-Dexecution.history.output=DROP", f"-Dexecution.checkpointing.savepoint-dir={hdfs_folder}"),
        *("-pyfs", str(FLIGHTS / "delays.py"), str(PROGRAM)),
        PYTHONPATH=str(year.packages),
    )
    found = re.findall(rf"is in the savepoint ({re.escape(hdfs_folder)}/savepoint-\S+)", done.err)
    assert len(found) == 1, done.err
    logs = session.yarrow.hadoop.container_logs(session.id, LOG_BYTES)
    assert rows_of("\n".join(logs.values())) == year.december
    listed = session.yarrow.hadoop.run("hdfs", "dfs", "-ls", "-C", found[0]).stdout.split()
    names = {path.rpartition("/")[2] for path in listed}
    assert "_metadata" in names and not any(name.startswith("_tmp-") for name in names)
    session.until_driver_is_gone()


def test_a_job_that_asks_for_more_than_the_container_has_is_refused_by_name(
    session: Application, output: Output
) -> None:
    outcome = session.yarrow(
        "run", "-yid", session.id, "-Dspark.driver.memory=4g", "sums.py", *output.arguments
    )
    assert outcome.status == 1
    assert "spark.driver.memory of 4 gb" in outcome.err and "yarn.spark-driver.memory" in outcome.err


def test_a_queue_without_room_is_waited_for_and_told(alone: Commands, output: Output) -> None:
    # The queue has 10 % of the cluster: room for the master and no more.
    started = alone.ok("session", "-d", "-nm", alone.name("waits"), "-qu", "small")
    application = Application(alone, started.application)
    job = alone.ok(
        "run", "-d", "-yid", application.id, "-Dslot.request.timeout=1h", "sums.py", *output.arguments
    ).job
    alone.eventually(
        lambda: "has not granted" in application.get(f"/jobs/{job}")["waiting-for"], "a reason is given"
    )
    assert "YARN has not granted 1 containers of 1600 MB" in application.get(f"/jobs/{job}")["waiting-for"]
    alone.ok("cancel", "-yid", application.id, job)
    alone.eventually(lambda: application.status(job) == "CANCELED", "it is cancelled")
    alone.ok("session", "-id", application.id, text="stop\n")
    assert alone.final_status(application.id) == "SUCCEEDED"


def test_a_killed_application_takes_its_driver_with_it(
    alone: Commands, output: Output, hadoop: HadoopCluster, hadoop_environment: None
) -> None:
    submitted = alone.ok(
        "run", "-d", "-t", "yarn-per-job", "-ynm", alone.name("killed"), "sums.py", *output.arguments
    )
    application = Application(alone, submitted.application)
    alone.eventually(lambda: output.is_waiting, "its tasks run")
    hadoop.kill_application(application.id)
    alone.eventually(lambda: not hadoop.container_processes(application.id), "nothing of it is left")
    assert not output.folder.exists() or CommittedFiles(output.folder).rows() == []
    with YarnClusterDescriptor(Settings()) as next_one:
        remove_abandoned(next_one.client((b"", b"")))


def test_a_killed_client_ends_its_job_with_the_driver(
    alone: Commands, output: Output, hadoop: HadoopCluster
) -> None:
    attached = alone.begin(
        "run",
        "-t",
        "yarn-per-job",
        "-ynm",
        alone.name("client"),
        "-Dexecution.shutdown-on-attached-exit=true",
        "-Dclient.heartbeat.interval=500ms",
        "-Dclient.heartbeat.timeout=20s",
        "sums.py",
        *output.arguments,
    )
    read_until(attached, "has been submitted")
    alone.eventually(lambda: output.is_waiting, "its tasks run")
    (entry,) = [one for one in hadoop.applications(("RUNNING",)) if one["name"] == alone.name("client")]
    end(attached, signal.SIGKILL)
    alone.final_status(entry["id"])
    alone.eventually(lambda: not hadoop.container_processes(entry["id"]), "nothing of it is left")
    assert not output.folder.exists() or CommittedFiles(output.folder).rows() == []


def test_a_master_that_takes_over_begins_the_job_again(
    alone: Commands, output: Output, hadoop: HadoopCluster, hdfs_folder: str, hadoop_environment: None
) -> None:
    settings = high_availability(hadoop.zookeeper_quorum, ROOT, f"{hdfs_folder}/ha")
    flags = [f"-D{key}={value}" for key, value in settings.items()]
    submitted = alone.ok(
        "run", "-d", "-t", "yarn-per-job", "-ynm", alone.name("again"), *flags, "sums.py", *output.arguments
    )
    application = Application(alone, submitted.application)
    alone.eventually(lambda: output.is_waiting, "its tasks run")
    (driver,) = application.drivers()
    output.forget_waiting()
    (master,) = application.processes(MASTER)
    os.kill(master, signal.SIGKILL)
    alone.eventually(lambda: output.is_waiting, "the next master's driver runs it")
    assert driver not in application.drivers()
    output.open_gate()
    assert alone.final_status(application.id) == "SUCCEEDED"
    output.assert_exact()
    alone.eventually(lambda: not hadoop.container_processes(application.id), "nothing of it is left")
    with zookeeper_client(hadoop.zookeeper_quorum) as client:
        until(lambda: not client.exists(f"{ROOT}/{application.id}"), GRACE, "nothing is stored")
        client.delete(ROOT, recursive=True)
