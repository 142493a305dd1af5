"""A session of PySpark in the test's own process, with a Java that this module starts.

PySpark starts Java with code of its own between fork and exec. There gRPC, once it has threads in this process, makes
the start fail now and then. A process of JavaProcess runs no code before exec. Owner: the test's main thread.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.serializers import UTF8Deserializer, read_int
from pyspark.sql import SparkSession

from tests.support.spark_classes import archive_flags
from tests.support.spark_driver import LIMIT
from yarrow.container.batch.spark.java.java_process import JavaProcess
from yarrow.container.batch.spark.requirements import find_java
from yarrow.container.batch.spark.session import java_environment
from yarrow.container.batch.spark.settings import SparkFolders, java_arguments, log4j_properties
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.loopback import LOOPBACK


@contextlib.contextmanager
def spark_session(folder: Path, name: str, settings: Mapping[str, str]) -> Iterator[SparkSession]:
    """A session with two tasks at a time, as a user's program makes it; `folder` is empty and takes all its files."""
    with pytest.MonkeyPatch.context() as environment, contextlib.closing(_Java(folder)) as java:
        environment.setenv("PYSPARK_PYTHON", sys.executable)
        port, secret = java.gateway()
        environment.setenv("PYSPARK_GATEWAY_PORT", str(port))
        environment.setenv("PYSPARK_GATEWAY_SECRET", secret)
        builder = SparkSession.builder.master("local[2]").appName(name)
        for key, value in {
            "spark.ui.enabled": "false",
            "spark.driver.bindAddress": LOOPBACK,
            "spark.driver.host": LOOPBACK,
            "spark.local.dir": f"{folder}/local",
            "spark.sql.warehouse.dir": f"{folder}/warehouse",
            **settings,
        }.items():
            builder = builder.config(key, value)
        with contextlib.ExitStack() as ending:
            # A session that does not start has its gateway already.
            ending.callback(_forget_gateway)
            session = builder.getOrCreate()
            ending.callback(session.stop)
            yield session


class _Java:
    """Java that waits for PySpark."""

    def __init__(self, folder: Path) -> None:
        folders = SparkFolders(folder / "java")
        folders.create()
        log = folder / "spark.log"
        (folders.working / "log4j2.properties").write_text(log4j_properties(log))
        self._announcement = folder / "gateway"
        self._output = folder / "java.out"
        jars = Path(pyspark.__file__).parent / "jars"
        arguments = java_arguments(Settings({}, "the test"), jars, log, folders)
        # Functions of tests are imported from the checkout. Spark plans data sources with the interpreter of its Java.
        own = {**os.environ, "PYTHONPATH": os.getcwd()}
        # Its home has no archives of PySpark: from its folder a Python process imports it in half of the time.
        variables = java_environment(own, folder, self._announcement) | {"PYSPARK_PYTHON": sys.executable}
        self._process = JavaProcess(
            find_java().executable,
            [*archive_flags(), *arguments],
            variables,
            self._output,
        )

    def gateway(self) -> tuple[int, str]:
        """The port and the secret that Java tells once it has started."""
        deadline = time.monotonic() + LIMIT
        while not self._announcement.exists():
            assert not self._process.has_ended() and time.monotonic() < deadline, self._output.read_text()
            time.sleep(0.05)
        with self._announcement.open("rb") as told:
            return read_int(told), UTF8Deserializer().loads(told)

    def close(self) -> None:
        self._process.end()


def _forget_gateway() -> None:
    """The next session of this process has another Java."""
    if SparkContext._gateway is not None:
        SparkContext._gateway.shutdown()
    SparkContext._gateway = SparkContext._jvm = None
