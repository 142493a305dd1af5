"""A standalone cluster with several masters, each a process, on real HDFS and ZooKeeper; and a job to watch."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.support.restored_state import Counting
from tests.yarn.highly_available import ClusterNodes, high_availability, stored_files, zookeeper_client
from tests.yarn.waiting import GRACE, until
from tests.yarn.watched_jobs import RESTARTS, WatchedJob
from yarrow.client.errors import CommandError
from yarrow.client.rest.masters import masters_rest_client
from yarrow.client.rest.rest_client import RestError, RestUnavailableError
from yarrow.common.configuration import Configuration
from yarrow.common.job_client import JobClient
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.connectors.base import SourceReader, SourceReaderContext
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.client_folder import STANDALONE_MASTER, WORKING_DIRECTORY_PREFIX, remove_abandoned
from yarrow.standalone.leader_announcements import LeaderAnnouncements
from yarrow.testing import gated_source
from yarrow.testing.gated_source import GatedSource, GatedSplit, key_of
from yarrow.testing.transactional_files import CommittedFiles, TransactionalFiles

ROOT = "/yarrow-tests"
#: In the environment of all processes of a cluster, workers included: its folder.
MARK = "YARROW_TEST_FOLDER"


class Process:
    """A master or a TaskExecutor."""

    def __init__(
        self, role: str, config: Mapping[str, str], folder: Path, environment: Mapping[str, str]
    ) -> None:
        self.log = folder / f"{role}.log"
        own = {MARK: str(folder), "TMPDIR": str(temporary_folder(folder))}
        arguments = [part for key, value in config.items() for part in ("-D", f"{key}={value}")]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "yarrow.cli.main", role.partition("-")[0], *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | environment | own,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """At once."""
        self._process.kill()
        self._process.wait()

    def begin_stop(self) -> None:
        """Tells it to end in order."""
        if self.runs:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()

    def stop(self) -> int:
        """In order; its exit status."""
        self.begin_stop()
        try:
            return self._process.wait(120)
        except subprocess.TimeoutExpired:
            self.kill()
            raise

    def said(self, text: str) -> int:
        """How often its log holds the text."""
        return self.log.read_text(errors="replace").count(text)


def temporary_folder(folder: Path) -> Path:
    """Where processes of a cluster make their temporary files."""
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    return temporary


class StandaloneMasters:
    """One cluster id."""

    def __init__(
        self,
        folder: Path,
        storage: str,
        quorum: str,
        environment: Mapping[str, str],
        session_timeout: str = "8 s",
    ) -> None:
        """`session_timeout`: what a new leader waits for at most; a pause of a busy machine ends no session."""
        self._folder = folder
        self._environment = environment
        self.quorum, self.root = quorum, f"{ROOT}/{folder.name}"
        self.storage = f"{storage}/ha/{folder.name}"
        self._left = ExitStack()
        client = self._left.enter_context(zookeeper_client(quorum))
        self._left.callback(client.retry, client.delete, ROOT, recursive=True)
        self._nodes = ClusterNodes(client, self.root)
        port = 20000 + os.getpid() % 20000
        self.config = {
            **high_availability(quorum, ROOT, f"{storage}/ha", session_timeout, cluster_id=folder.name),
            "security.cluster.directory": str(folder / "cluster"),
            "jobmanager.rpc.address": "127.0.0.1",
            "jobmanager.bind-host": "127.0.0.1",
            "rest.bind-port": f"{port}-{port + 200}",
            "taskmanager.numberOfTaskSlots": "2",
            "taskmanager.host": "127.0.0.1",
            "heartbeat.interval": "1 s",
            "heartbeat.timeout": "8 s",
        }
        self.masters: list[Process] = []
        self.task_executors: list[Process] = []

    def start(self, masters: int = 2, task_executors: int = 1) -> None:
        """Returns when a leader answers and all TaskExecutors are registered; of what does not, nothing runs on."""
        try:
            self._start(masters, task_executors)
        except BaseException:
            self.stop()
            raise

    def _start(self, masters: int, task_executors: int) -> None:
        for _ in range(masters):
            self.add_master()
        for number in range(task_executors):
            process = Process(f"taskmanager-{number}", self.config, self._folder, self._environment)
            self.task_executors.append(process)
        until(
            lambda: self.overview().get("taskmanagers") == task_executors, GRACE, "TaskExecutors registered"
        )

    def add_master(self) -> Process:
        role = f"jobmanager-{len(self.masters)}"
        self.masters.append(Process(role, self.config, self._folder, self._environment))
        return self.masters[-1]

    def stop(self) -> None:
        """Ends everything, and removes what is stored."""
        with self._left:
            processes = [one for one in (*self.task_executors, *self.masters) if one.runs]
            for process in processes:
                process.begin_stop()
            for process in processes:
                process.stop()
        with suppress(AssertionError):
            until(lambda: not self._left_on_this_machine(), GRACE, "nothing is left")
        assert not (left := self._left_on_this_machine()), f"the cluster left on this machine: {left}"

    def _left_on_this_machine(self) -> list[str]:
        """Processes, workers of killed TaskExecutors too; temporary files, but those that the next would remove."""
        temporary = temporary_folder(self._folder)
        for prefix in (STANDALONE_MASTER, WORKING_DIRECTORY_PREFIX):
            remove_abandoned(str(temporary), prefix)
        left = [str(path) for path in temporary.iterdir()]
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == str(self._folder):
                    left.append(f"{process.pid}: {process.cmdline()}")
        return left

    # What clients see.

    @property
    def settings(self) -> Settings:
        return Settings(
            {**self.config, "rest.await-leader-timeout": "30 s", "execution.target": "remote"}, "a test"
        )

    def get(self, path: str) -> Any:
        """The leader's answer, None while there is none."""
        try:
            return masters_rest_client(self.settings).get(path)
        except (RestError, RestUnavailableError, CommandError):
            # The last: nobody leads. How long that may last the caller decides.
            return None

    def ask(self, method: str, path: str) -> Any:
        """The leader's answer; an error where there is none."""
        return masters_rest_client(self.settings).json(method, path)

    def ask_master(self, master: Process, path: str) -> Any:
        """The answer of that master's own REST, whoever leads."""
        found: list[str] = []

        def says_where() -> bool:
            found[:] = re.findall(r"JobManager Web Interface: (http://\S+)", master.log.read_text())
            return bool(found)

        until(says_where, GRACE, "the address of its REST")
        with urllib.request.urlopen(f"{found[0]}{path}", timeout=GRACE) as answer:
            return json.loads(answer.read())

    def has_ended(self) -> bool:
        return not any(master.runs for master in self.masters)

    def overview(self) -> dict[str, Any]:
        found: dict[str, Any] = self.get("/overview") or {}
        return found

    def status(self, job_id: str) -> str:
        return str((self.get(f"/jobs/{job_id}") or {}).get("state"))

    def completed_checkpoints(self, job_id: str) -> int:
        return int(
            (self.get(f"/jobs/{job_id}/checkpoints") or {"counts": {"completed": 0}})["counts"]["completed"]
        )

    def until_running(self, job_id: str, seconds: float = GRACE) -> None:
        """Returns when every task of the job runs."""

        def runs() -> bool:
            job = self.get(f"/jobs/{job_id}") or {}
            tasks = job.get("status-counts", {})
            return job.get("state") == "RUNNING" and tasks.get("RUNNING") == sum(tasks.values()) > 0

        until(runs, seconds, f"job {job_id} runs")

    def until_checkpoints(self, job_id: str, more: int) -> None:
        """Returns when the present master has completed so many checkpoints."""
        until(lambda: self.completed_checkpoints(job_id) >= more, GRACE, f"{more} checkpoints")

    # What is stored.

    def present_leader(self) -> Process | None:
        """The master that leads, by its announcement; None while none of those that run does."""
        announced = LeaderAnnouncements(self._folder / "cluster").present()
        if announced is None:
            return None
        return next((master for master in self.masters if master.pid == announced.pid and master.runs), None)

    def leader(self) -> Process:
        """The same, waited for."""
        found: list[Process] = []

        def leads() -> bool:
            found[:] = [master for master in (self.present_leader(),) if master is not None]
            return bool(found)

        until(leads, GRACE, "a master leads")
        return found[0]

    def znodes(self) -> list[str]:
        """Nodes below the cluster id that hold something of jobs."""
        return self._nodes.of_jobs()

    def epoch(self) -> int:
        """The epoch that has begun last."""
        return self._nodes.epoch()

    def stored_files(self) -> list[str]:
        """Files of job graphs and blobs."""
        return stored_files(self.storage)

    def until_nothing_is_stored(self) -> None:
        """Of jobs that have ended."""
        until(lambda: (self.znodes(), self.stored_files()) == ([], []), GRACE, "nothing is stored of jobs")


def environment_of(settings: Mapping[str, str]) -> StreamExecutionEnvironment:
    """Where a program of these settings is built."""
    configuration = Configuration()
    for key, value in settings.items():
        configuration.set_string(key, value)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


class SlowGatedSource(GatedSource):
    """Takes a while for its rows, so that faults find it at work."""

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, GatedSplit]:
        reader = gated_source._Reader(self, context)
        reader.PAUSE = 0.02
        return reader


class LostForGoodError(YarrowError):
    """An error that no restart could help."""

    is_final = True


def failing_by(file: str) -> Callable[[int], int]:
    """Lets rows pass slowly until the file is there, and then fails for good."""

    def passed(number: int) -> int:
        if os.path.exists(file):
            raise LostForGoodError("the rows are lost")
        time.sleep(0.01)
        return number

    return passed


class RowsLostForGood(WatchedJob):
    """A job with checkpoints that fails for good when it is told."""

    def __init__(self, cluster: StandaloneMasters, folder: Path, checkpoints: str) -> None:
        self._file = folder / "lost"
        env = environment_of(
            {
                **{
                    key: value
                    for key, value in cluster.config.items()
                    if key.startswith("high-availability.")
                },
                "execution.target": "remote",
                "security.cluster.directory": cluster.config["security.cluster.directory"],
                "execution.checkpointing.interval": "500 ms",
                "execution.checkpointing.dir": checkpoints,
                **RESTARTS,
            }
        )
        env.set_parallelism(1)
        env.from_sequence(1, 10**12).map(failing_by(str(self._file))).filter(lambda number: False).print()
        client = env.execute_async("rows that are lost")
        super().__init__(cluster, str(client.get_job_id()))
        self.checkpoints = f"{checkpoints}/{self.job_id}"

    def fail(self) -> None:
        """Returns when the job has failed."""
        self._file.touch()
        until(lambda: self.state() == "FAILED", GRACE, "the job has failed for good")


class CountedRows(WatchedJob):
    """A job of keyed counts with transactional output, that ends when it is let go."""

    SPLITS, ROWS = 2, 2400

    def __init__(self, cluster: StandaloneMasters, folder: Path, checkpoints: str, **others: str) -> None:
        self._gates, self.output = folder / "gates", folder / "output"
        self._gates.mkdir()
        self.source = SlowGatedSource(
            "s", str(self._gates), splits=self.SPLITS, rows=self.ROWS, patience=300.0
        )
        values = {
            **{key: value for key, value in cluster.config.items() if key.startswith("high-availability.")},
            "execution.target": "remote",
            "security.cluster.directory": cluster.config["security.cluster.directory"],
            "execution.checkpointing.interval": "500 ms",
            "execution.checkpointing.dir": checkpoints,
            "execution.checkpointing.timeout": "30 s",
            **RESTARTS,
            **others,
        }
        env = environment_of(values)
        env.set_parallelism(2)
        rows = env.from_source(self.source, WatermarkStrategy.no_watermarks(), "rows")
        rows.key_by(key_of).process(Counting()).sink_to(TransactionalFiles(str(self.output)))
        self.client: JobClient = env.execute_async("counted rows")
        super().__init__(cluster, str(self.client.get_job_id()))

    def finish(self) -> None:
        """The source may bring its last rows; returns when the output is that without faults."""
        (self._gates / "fired").touch()
        self.client.get_job_execution_result().result(GRACE)
        self._check()

    def _check(self) -> None:
        """Each row once, in the order of its key's counts."""
        committed = CommittedFiles(self.output)
        assert committed.committed_twice() == []
        assert not (self._gates / "impatient").exists(), "the source went on by itself"
        rows = committed.rows()
        assert sorted(identity for _, _, identity in rows) == sorted(row[2] for row in self.source.all_rows())
        counts: defaultdict[str, list[int]] = defaultdict(list)
        for key, count, _ in rows:
            counts[key].append(count)
        assert all(found == list(range(1, len(found) + 1)) for found in counts.values())
