"""The example of live ETL, run as a reader runs it: its tables are those of plain Python, and nothing stays behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.cluster.embedded.waiting import DEADLINE, wait_until
from tests.kafka.live_etl_model import Model
from tests.support.kafka.cluster import KafkaCluster

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "live_etl"
MINUTES = 12


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of the example's program."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    names = ("run", "shop", "standings", "tables", "turnover")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    import run  # type: ignore[import-not-found]

    yield run
    for name in names:
        sys.modules.pop(name, None)


@contextmanager
def running(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """The example; what it leaves in the folder for temporary files, and processes, are left over."""
    command = [sys.executable, str(EXAMPLE / "run.py"), "--pace", "0.1", *arguments]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder)},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(DEADLINE)


def lines_until(process: subprocess.Popen[str], start: str) -> list[str]:
    """The lines of the example, up to the first one with that start."""
    assert process.stderr is not None
    lines = []
    for line in process.stderr:
        lines.append(line)
        if line.startswith(start):
            return lines
    raise AssertionError("".join(lines))


def until_sold(process: subprocess.Popen[str], clock: str) -> list[psutil.Process]:
    """Waits until a minute was sold; returns the processes of the example."""
    lines_until(process, clock)
    return [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]


def until_both_run(lines: list[str]) -> None:
    """Waits until all tasks of both jobs run: each has a cluster of its own, whose page the example names."""
    pages = [line.split()[-1] for line in lines if line.startswith("JobManager Web Interface: ")]
    assert len(pages) == 2, lines
    wait_until(lambda: all(map(is_running, pages)), lambda: f"{[jobs_of(page) for page in pages]}")


def is_running(page: str) -> bool:
    """Whether all tasks of the only job of a cluster run."""
    jobs = jobs_of(page)
    return len(jobs) == 1 and 0 < jobs[0]["tasks"]["running"] == jobs[0]["tasks"]["total"]


def jobs_of(page: str) -> Any:
    """The jobs of a cluster, as its REST server lists them."""
    with urllib.request.urlopen(f"{page}/jobs/overview", timeout=DEADLINE) as answer:
        return json.load(answer)["jobs"]


def require_clean(folder: Path, processes: list[psutil.Process]) -> None:
    """Nothing of the example is left."""
    psutil.wait_procs(processes, DEADLINE)
    assert [process for process in processes if process.is_running()] == []
    assert list(folder.glob("live-etl-*")) == []
    brokers = [process for process in psutil.process_iter(["cmdline"]) if is_of(folder, process)]
    assert brokers == []


def is_of(folder: Path, process: psutil.Process) -> bool:
    """Whether a process was started with something in a folder."""
    return any(str(folder) in argument for argument in process.info["cmdline"] or ())


def model_of(example: Any) -> Model:
    return Model(example.shop.records(MINUTES))


def require_printed(output: str, model: Model) -> None:
    """The output is the table of the model and the numbers of its dead letters."""
    assert model.standings and min(model.letters[topic] for topic in ("orders", "payments")) > 0
    rows = [" ".join(line.split()) for line in output.splitlines()]
    assert rows[0] == "country paid unpaid euros flagged"
    assert rows[1 : len(model.standings) + 1] == model.printed()
    letters: Counter[str] = Counter()
    for row in rows[len(model.standings) + 1 :]:
        number, topic = re.fullmatch(r"(\d+) dead letters from (\w+)(?:-\d+)?", row).groups()  # type: ignore[union-attr]
        letters[topic] += int(number)
    assert letters == model.letters


def test_one_command_with_a_worker_killed(example: Any, tmp_path: Path) -> None:
    with running(tmp_path, "--minutes", str(MINUTES), "--pace", "0.3") as process:
        # A worker without tasks would be replaced, and no job would restart.
        until_both_run(lines_until(process, "09:08"))
        processes = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
        workers = [child for child in processes if child.name().startswith("yarrow-slot")]
        os.kill(max(worker.pid for worker in workers), signal.SIGKILL)
        output, errors = process.communicate(timeout=DEADLINE)
    assert process.returncode == 0, errors
    assert "the job 'turnover' restarts" in errors or "the job 'standings' restarts" in errors
    require_printed(output, model_of(example))
    require_clean(tmp_path, processes)


def test_the_tables_on_a_broker_that_runs_already(example: Any, kafka: KafkaCluster, tmp_path: Path) -> None:
    servers = kafka.bootstrap_servers
    try:
        arguments = ("--minutes", str(MINUTES), "--servers", servers)
        with running(tmp_path, *arguments) as process:
            output, errors = process.communicate(timeout=DEADLINE)
        assert process.returncode == 0, errors
        model = model_of(example)
        require_printed(output, model)
        assert example.table(servers, "turnover") == model.turnover
        assert example.table(servers, "standings") == model.standings
        removed = [message for message in example.read(servers, "turnover") if message.value() is None]
        assert removed, "no row has left the table"
    finally:
        for topic in example.TOPICS:
            kafka.delete_topic(topic)


def test_a_failed_job_ends_the_example(example: Any, kafka: KafkaCluster, tmp_path: Path) -> None:
    servers = kafka.bootstrap_servers
    try:
        with running(tmp_path, "--minutes", "500", "--servers", servers) as process:
            processes = until_sold(process, "09:02")
            # More bad records than the job bears.
            example.shop.send(servers, [example.shop.Record("orders", b"", b"?", 0)] * 3000)
            _, errors = process.communicate(timeout=DEADLINE)
        assert process.returncode == 1 and "could not read" in errors, errors[-3000:]
        require_clean(tmp_path, processes)
    finally:
        for topic in example.TOPICS:
            kafka.delete_topic(topic)


def test_ctrl_c_leaves_nothing(tmp_path: Path) -> None:
    with running(tmp_path, "--minutes", "500") as process:
        processes = until_sold(process, "09:02")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=DEADLINE)
    assert process.returncode != 0
    require_clean(tmp_path, processes)
