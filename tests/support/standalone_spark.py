"""A standalone Spark of one master and two workers, which count as two hosts: Spark puts no copy of a task on the host
of the first one.

Owner: the test's thread. All processes end with the block. Tests only.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import pyspark

from tests.support.spark_classes import archive_flags
from yarrow.container.batch.spark.requirements import find_java

HOSTS = ("127.0.0.1", "127.0.0.2")
_LIMIT = 300.0
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_MASTER_STARTED = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_REGISTERED = "Registering worker"
#: Java of tests lives for seconds: it compiles little.
LEAN = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
LEAN_EXECUTORS = {"spark.executor.extraJavaOptions": LEAN}


def lean_java() -> str:
    """Flags of Java for processes of Spark on this host: besides, they take the run's archive of classes."""
    return " ".join((LEAN, *archive_flags()))


def lean_executors() -> dict[str, str]:
    """The same as a setting for executors."""
    return {"spark.executor.extraJavaOptions": lean_java()}


@dataclass(frozen=True)
class StandaloneSpark:
    """A running one."""

    address: str
    #: What a driver of its executors needs.
    configuration: Mapping[str, str]


@contextlib.contextmanager
def standalone_spark(folder: Path) -> Iterator[StandaloneSpark]:
    """Two workers with a core each; `folder` takes their logs and files."""
    own = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": secrets.token_hex(16),
        "spark.network.crypto.enabled": "true",
    }
    properties = folder / "spark.properties"
    properties.write_text("".join(f"{key} {value}\n" for key, value in own.items()))
    with contextlib.ExitStack() as running:
        log = _start(running, folder, "master", _MASTER, "--host", HOSTS[0], "--port", "0")
        address = _until_logged(log, _MASTER_STARTED)
        for number, host in enumerate(HOSTS):
            place = ("--host", host, "--work-dir", str(folder / f"work-{number}"))
            _start(running, folder, f"worker-{number}", _WORKER, *place, "-c", "1", "-m", "700M", address)
        for number in range(len(HOSTS)):
            _until_logged(log, re.compile(f"({_WORKER_REGISTERED}.*)"), number)
        secret = {"spark.authenticate.secret": own["spark.authenticate.secret"]}
        yield StandaloneSpark(address, {"spark.master": address, **lean_executors(), **secret})


def _start(running: contextlib.ExitStack, folder: Path, name: str, role: str, *arguments: str) -> Path:
    """Starts a process that ends with `running`; its log."""
    home = Path(pyspark.__file__).parent
    java = find_java().executable.parent.parent
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(java),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": lean_java(),
    }
    common = ("--webui-port", "0", "--properties-file", str(folder / "spark.properties"))
    log = folder / f"{name}.log"
    with open(log, "wb") as stream:
        process = subprocess.Popen(
            [str(home / "bin" / "spark-class"), role, *common, *arguments],
            stdout=stream,
            stderr=stream,
            stdin=subprocess.DEVNULL,
            env=environment,
            cwd=folder,
        )
    running.callback(_end, process)
    return log


def _until_logged(log: Path, line: re.Pattern[str], number: int = 0) -> str:
    """The group of the n-th such line in a log, from 0."""
    deadline = time.monotonic() + _LIMIT
    while len(found := line.findall(log.read_text())) <= number:
        assert time.monotonic() < deadline, log.read_text()
        time.sleep(0.05)
    return str(found[number])


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a process and what runs below it."""
    below = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    for each in below:
        with contextlib.suppress(psutil.Error):
            each.kill()
    process.wait()
