"""The doctor's checks on the client's machine: Java, the `yarn` program, Python, settings, ZooKeeper's ports.

Owner: the main thread; blocking, each check with a short limit.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator

from yarrow.cli.doctor.doctor_findings import Finding, failed, fine, warned
from yarrow.client.yarn.environment.environment import AUTO, NO_ENVIRONMENT
from yarrow.client.yarn.environment.environment_files import (
    EnvironmentPart,
    environment_files,
    system_libraries,
)
from yarrow.client.yarn.staging import check_places, stage
from yarrow.client.yarn.submission import master_shape, task_executor_shape, without_effect
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.options import high_availability, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import validate

#: The Java version for which Skein's driver was compiled.
OLDEST_JAVA = 8
_PROGRAM_SECONDS = 60.0
_CONNECT_SECONDS = 3.0
#: A larger packed environment takes long to reach a new node.
_LARGE_MB = 2000


def java() -> Iterator[Finding]:
    """JAVA_HOME, and the version of the Java in it."""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if program is None:
        yield failed("java", "there is none: install a JRE and set JAVA_HOME to its folder")
        return
    if not os.access(program, os.X_OK):
        yield failed("java", f"JAVA_HOME is {home}, but there is no {program}: set it to the folder of a JRE")
        return
    run = subprocess.run(
        [program, "-version"], capture_output=True, text=True, timeout=_PROGRAM_SECONDS, check=False
    )
    found = re.search(r'version "(?:1\.)?(\d+)([^"]*)"', run.stderr)
    if run.returncode or found is None:
        yield failed("java", f"{program} does not tell its version: {run.stderr.strip()[:200]}")
    elif int(found[1]) < OLDEST_JAVA:
        yield failed(
            "java", f"{program} is Java {found[1]}; Skein needs {OLDEST_JAVA} or newer: set JAVA_HOME"
        )
    elif home is None:
        yield warned("java", f"Java {found[1]} at {program}, but JAVA_HOME is not set, which `yarn` asks for")
    else:
        yield fine("java", f"Java {found[1]}{found[2]} at {home} (JAVA_HOME)")


def yarn_program() -> Iterator[Finding]:
    """`yarn` on PATH, and its answer to Skein."""
    program = shutil.which("yarn")
    if program is None:
        yield failed("yarn", "there is no `yarn` program on PATH: add the bin folder of Hadoop to PATH")
        return
    command = [program, "classpath", "--glob"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=_PROGRAM_SECONDS, check=False)
    jars = [entry for entry in run.stdout.strip().split(":") if entry.endswith(".jar")]
    if run.returncode:
        said = (run.stderr.strip().splitlines() or ["nothing"])[-1]
        yield failed("yarn", f"`{program} classpath --glob` ended with status {run.returncode}: {said}")
    elif not any("hadoop-yarn-client" in os.path.basename(jar) for jar in jars):
        yield failed(
            "yarn",
            f"`{program} classpath --glob` names {len(jars)} jars and no hadoop-yarn-client among them: it must be the"
            " program of a Hadoop installation (PATH)",
        )
    else:
        yield fine("yarn", f"{program}, {len(jars)} jars on its class path")


def python(config: Settings) -> Iterator[Finding]:
    """The interpreter, and the content of a packed environment."""
    version = ".".join(map(str, sys.version_info[:3]))
    wanted = config.get(yarn.ENVIRONMENT).strip()
    if wanted.lower() == NO_ENVIRONMENT:
        yield warned(
            "python",
            f"{yarn.ENVIRONMENT.key} is none: every node needs Python {version} with Yarrow at {sys.executable}",
        )
        return
    if wanted.lower() != AUTO:
        yield fine("python", f"Python {version}; containers use {wanted} ({yarn.ENVIRONMENT.key})")
        return
    packages = environment_files(EnvironmentPart.PACKAGES)
    editable = environment_files(EnvironmentPart.EDITABLE)
    libraries = system_libraries((*packages, *editable))
    files = (*packages, *editable, *libraries)
    unreadable = next((file.source for file in files if not os.access(file.source, os.R_OK)), None)
    if unreadable is not None:
        yield failed(
            "python", f"{unreadable} cannot be read, so the environment {sys.prefix} cannot be packed"
        )
        return
    size = round(sum(file.size for file in files) / 1e6)
    text = (
        f"Python {version}; the environment {sys.prefix} is packed: {len(files)} files, {size} MB,"
        f" {len(libraries)} libraries of this system ({yarn.ENVIRONMENT.key}: auto)"
    )
    large = size > _LARGE_MB
    yield (
        warned("python", f"{text}; a smaller environment starts sooner on a new node")
        if large
        else fine("python", text)
    )


def settings(config: Settings) -> Iterator[Finding]:
    """Places that nodes cannot see, impossible sizes, missing files, settings without effect."""
    import tempfile
    from pathlib import Path

    try:
        validate(config)
        check_places(config)
        master, task_executor = master_shape(config), task_executor_shape(config)
        with tempfile.TemporaryDirectory(prefix="yarrow-doctor-") as folder:
            stage(_without_remote(config), Path(folder))
    except YarrowError as error:
        yield failed("settings", str(error))
        return
    yield fine(
        "settings",
        f"containers of {master.memory_mb} MiB (jobmanager.memory.process.size) and {task_executor.memory_mb} MiB"
        " (taskmanager.memory.process.size)",
    )
    for sentence in without_effect(config):
        yield warned("settings", sentence)


def _without_remote(config: Settings) -> Settings:
    """Files on HDFS are checked once HDFS is known to answer."""
    return config.with_value(yarn.PROVIDED_LIB_DIRS, None).with_value(yarn.PROVIDED_USER_LIB_DIR, None)


def zookeeper(config: Settings) -> Iterator[Finding]:
    """Checks that each server of the quorum accepts a connection, with high availability."""
    if config.get(high_availability.TYPE).lower() != "zookeeper":
        return
    quorum = config.get(high_availability.ZOOKEEPER_QUORUM)
    key = high_availability.ZOOKEEPER_QUORUM.key
    if not quorum:
        yield failed("zookeeper", f"{high_availability.TYPE.key} is zookeeper and {key} is not set")
        return
    if not config.get(high_availability.STORAGE_DIR):
        yield failed("zookeeper", f"{high_availability.STORAGE_DIR.key} is not set: name a directory on HDFS")
    servers = [server.strip() for server in quorum.partition("/")[0].split(",") if server.strip()]
    silent = [f"{server} ({reason})" for server in servers if (reason := _refusal(server))]
    if 2 * (len(servers) - len(silent)) <= len(servers):
        yield failed("zookeeper", f"no majority of {key} answers; tried {', '.join(silent)}")
    elif silent:
        yield warned("zookeeper", f"of {key} these do not answer: {', '.join(silent)}")
    else:
        yield fine("zookeeper", f"{', '.join(servers)} take connections")


def _refusal(server: str) -> str:
    host, _, port = server.rpartition(":")
    try:
        socket.create_connection((host or server, int(port) if host else 2181), _CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        return str(error)
    return ""
