"""The `yarrow` command for tests on a real YARN: a folder of its own, small containers, no application left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

import psutil

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.process_names import command_of
from tests.yarn.waiting import GRACE, until
from yarrow.runtime.fs.client_folder import remove_abandoned
from yarrow.runtime.yarn.layout import DRIVER_FOLDER, SUBMISSION_FOLDER

#: Seconds for one command; a machine under load starts containers slowly.
DEADLINE = 600.0
APPLICATION = re.compile(r"application_\d+_\d+")
JOB = re.compile(r"JobID ([0-9a-f]{32})")
#: Containers use this interpreter where it lies: packing it has tests of its own.
CONFIGURATION = {
    "yarn.environment": "none",
    "jobmanager.memory.process.size": "640m",
    "taskmanager.memory.process.size": "768m",
    "taskmanager.numberOfTaskSlots": "1",
    # Containers are asked for, and heard of, within a fifth of a second.
    "yarn.heartbeat.container-request-interval": "200",
}
#: It has a row now and then: a job that is only to be there leaves the cores to others.
ENDLESS = """
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
source = DataGeneratorSource(lambda x: x, 10**15, RateLimiterStrategy.per_second(20))
rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
rows.map(lambda x: x).filter(lambda x: False).print()
env.execute("endless")
"""
DOUBLES = """
import sys
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
with env.from_collection(list(range(1000))).map(lambda x: x * 2).execute_and_collect("doubles") as rows:
    print("sum", sum(rows), sys.argv[1:], flush=True)
"""
BROKEN = """
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
def divide(number):
    return 1 // number
env.from_collection([1, 0]).map(divide).print()
env.execute("broken")
"""


@dataclass(frozen=True)
class Outcome:
    """How a command ended."""

    status: int
    out: str
    err: str

    @property
    def application(self) -> str:
        """The application that it names first on standard output."""
        found = APPLICATION.search(self.out)
        assert found is not None, self
        return found.group()

    @property
    def job(self) -> str:
        """The job that it submitted."""
        found = JOB.search(self.out)
        assert found is not None, self
        return found.group(1)


@dataclass
class Commands:
    """Calls `yarrow` in a folder, with a configuration of its own, against one cluster."""

    hadoop: HadoopCluster
    folder: Path
    configuration: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    #: Those that `begin` has started.
    begun: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Writes the configuration and the programs."""
        self.configuration = {
            **CONFIGURATION,
            "yarn.properties-file.location": str(self.folder / "files"),
            **self.configuration,
        }
        (self.folder / "conf").mkdir()
        self.temporary.mkdir()
        lines = [f"{key}: {value}\n" for key, value in self.configuration.items()]
        (self.folder / "conf" / "config.yaml").write_text("".join(lines))
        for name, text in (("endless", ENDLESS), ("doubles", DOUBLES), ("broken", BROKEN)):
            (self.folder / f"{name}.py").write_text(text)

    @property
    def temporary(self) -> Path:
        """The folder for temporary files of all commands."""
        return self.folder / "temporary"

    @property
    def files(self) -> list[str]:
        """Names of what the client keeps of its applications."""
        return sorted(path.name for path in (self.folder / "files").glob(".yarrow-*"))

    def __call__(self, *arguments: str, text: str = "", **variables: str) -> Outcome:
        """Runs the command to its end, with `text` as its input."""
        done = subprocess.run(
            self._command(arguments),
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=self._variables(variables),
            timeout=DEADLINE,
            input=text,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    def ok(self, *arguments: str, text: str = "", **variables: str) -> Outcome:
        """The same, and it must succeed."""
        outcome = self(*arguments, text=text, **variables)
        assert outcome.status == 0, f"{arguments}: {outcome.status}\n{outcome.out}\n{outcome.err}"
        return outcome

    def begin(self, *arguments: str) -> subprocess.Popen[str]:
        """Starts the command; its standard input stays open."""
        with (self.folder / "stderr").open("w") as errors:
            process = subprocess.Popen(
                self._command(arguments),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=self.folder,
                env=self._variables({}),
            )
        self.begun.append(process)
        return process

    def state(self, application: str) -> str:
        """YARN's state of an application."""
        return str(self.hadoop.application(application)["state"])

    def final_status(self, application: str) -> str:
        """YARN's final status of an application that ends."""
        self.eventually(lambda: self.state(application) in ("FINISHED", "FAILED", "KILLED"), "its end")
        return str(self.hadoop.application(application)["finalStatus"])

    def eventually(self, condition: Callable[[], bool], what: str) -> None:
        """Waits until something holds."""
        until(condition, DEADLINE, what)

    def end_all(self, before: set[str]) -> None:
        """Kills the applications that are not of `before`: those of a test that failed."""
        for entry in self.hadoop.applications(("NEW", "SUBMITTED", "ACCEPTED", "RUNNING")):
            if entry["id"] not in before and f"-{os.getpid()}" in str(entry["name"]):
                self.hadoop.kill_application(entry["id"])

    def assert_nothing_left(self) -> None:
        """No process and no temporary file of a command outlives it, those of one that the test kills apart."""
        left: list[str] = []

        def is_clean() -> bool:
            left[:] = self._left()
            return not left

        with suppress(AssertionError):
            until(is_clean, GRACE, "nothing is left")
        assert not left, f"commands left on this machine: {left}"

    def _left(self) -> list[str]:
        if any(process.returncode == -signal.SIGKILL for process in self.begun):
            # As the next deployment does: whoever is killed removes nothing.
            for prefix in (SUBMISSION_FOLDER, DRIVER_FOLDER):
                remove_abandoned(str(self.temporary), prefix)
        files = [str(path) for path in self.temporary.iterdir()]
        return files + [f"{process.pid}: {command_of(process)}" for process in self._processes()]

    def _processes(self) -> Iterator[psutil.Process]:
        """Those with this configuration, whoever has started them; none of a container has it."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get("YARROW_CONF_DIR") == str(self.folder / "conf"):
                    yield process

    @staticmethod
    def name(what: str) -> str:
        """A name for an application of this test run."""
        return f"{what}-{os.getpid()}"

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [str(Path(sys.executable).with_name("yarrow")), *arguments]

    def _variables(self, more: dict[str, str]) -> dict[str, str]:
        own = {"YARROW_CONF_DIR": str(self.folder / "conf"), "TMPDIR": str(self.temporary)}
        return {**os.environ, **self.hadoop.environment(), **self.environment, **own, **more}


@contextmanager
def commands_in(
    hadoop: HadoopCluster, folder: Path, configuration: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Commands]:
    """The command in a folder; after the block nothing is left on this machine, and no application where it failed."""
    before = {entry["id"] for entry in hadoop.applications()}
    commands = Commands(hadoop, folder, dict(configuration))
    try:
        yield commands
    finally:
        commands.end_all(before)
    commands.assert_nothing_left()


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What the process prints until a line has `text`."""
    assert process.stdout is not None
    seen = ""
    for line in process.stdout:
        seen += line
        if text in line:
            return seen
    raise AssertionError(f"the command ended without {text!r}:\n{seen}")


def end(process: subprocess.Popen[str], number: signal.Signals) -> int:
    """Sends a signal and waits; the exit status."""
    process.send_signal(number)
    try:
        return process.wait(DEADLINE)
    finally:
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()
