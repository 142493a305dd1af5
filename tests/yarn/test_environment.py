"""Containers run the packed environment and nothing of the client's or the node's: interpreter, modules, libraries."""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.packed_interpreters import zipped_environment
from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.commands import Commands, commands_in
from tests.yarn.rest import ask, client_secrets
from yarrow.client.yarn.environment.environment import prepare
from yarrow.client.yarn.environment.environment_libraries import is_c_runtime
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.registry import file_system_for

#: What a process of the job loads, and from where; in application mode main() tells of itself as well.
PLACES = """
import json
import sys
from yarrow.datastream import StreamExecutionEnvironment

def facts(whose):
    import os, sys, numpy, pyarrow, ssl, yarrow.container
    import runtime, layout
    import yarrow.runtime.yarn.layout
    assert runtime.WHOSE == layout.WHOSE == "the user's"
    assert not hasattr(yarrow.runtime.yarn.layout, "WHOSE")
    with open("/proc/self/maps") as maps:
        libraries = sorted({line.split()[5] for line in maps if ".so" in line})
    # The program's own path is one below the working directory.
    modules = {name: os.path.abspath(module.__file__) for name, module in sys.modules.items()
               if getattr(module, "__file__", None)}
    return json.dumps({
        "whose": whose, "base_prefix": sys.base_prefix, "path": sys.path, "libraries": libraries, "modules": modules,
    })

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
if sys.argv[1:] == ["main"]:
    print("FACTS", facts("main"), flush=True)
with env.from_collection(["worker"]).map(facts).execute_and_collect("places") as rows:
    for row in rows:
        print("FACTS", row, flush=True)
"""
FACTS = """
import json
import sys
from yarrow.datastream import StreamExecutionEnvironment

def facts(number):
    import sys, numpy, pyarrow, shipped_module, ssl, yarrow.container, sqlite3
    with open("/proc/self/maps") as maps:
        libraries = sorted({line.split()[5] for line in maps if ".so" in line})
    modules = {name: module.__file__ for name, module in sys.modules.items() if getattr(module, "__file__", None)}
    files = []
    for name in ("shipped.txt", "tables/deep/one.csv", "model/weights.txt", "lib/given/too.txt"):
        with open(name) as file:
            files.append(file.read())
    import wanted
    return json.dumps({
        "base_prefix": sys.base_prefix, "path": sys.path, "libraries": libraries, "modules": modules,
        "shipped": [shipped_module.WHOSE, wanted.WHOSE], "files": files,
    })

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
with env.from_collection([1]).map(facts).execute_and_collect("facts") as rows:
    for row in rows:
        print("FACTS", row, flush=True)
"""

#: Which interpreter runs main(), and which the function.
INTERPRETERS = """
import json
import sys
from yarrow.datastream import StreamExecutionEnvironment

def where(whose):
    import os, sys
    return json.dumps({"whose": whose, "executable": sys.executable, "prefix": sys.prefix, "folder": os.getcwd()})

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
print("MAIN", where("main"), flush=True)
with env.from_collection(["worker"]).map(where).execute_and_collect("interpreters") as rows:
    for row in rows:
        print("WHERE", row, flush=True)
"""


@pytest.fixture
def commands(hadoop: HadoopCluster, tmp_path: Path) -> Iterator[Commands]:
    (tmp_path / "facts.py").write_text(FACTS)
    with commands_in(hadoop, tmp_path, {"yarn.environment": "auto"}) as made:
        yield made


def outside(places: list[str], folders: tuple[str, ...]) -> list[str]:
    return [place for place in places if not place.startswith(folders)]


def assert_inside(facts: dict[str, Any], local: str) -> None:
    """All of a process is in its container's folder, or where links of that lead to, in the node's cache `local`."""
    container = facts["base_prefix"].removesuffix("/environment")
    inside = (f"{container}/", f"{local}/")
    assert re.search(r"/container_[^/]*$", container)
    assert outside(facts["path"], inside) == []
    assert outside(list(facts["modules"].values()), inside) == []
    assert [one for one in outside(facts["libraries"], inside) if not is_c_runtime(one)] == []


def content(folder: Path) -> None:
    """An archive, and a requirement with the wheel that fulfils it."""
    with zipfile.ZipFile(folder / "model.zip", "w") as archive:
        archive.writestr("weights.txt", "0.5")
    (folder / "needs.txt").write_text("wanted\n")
    (folder / "wheels").mkdir()
    info = "wanted-1.0.dist-info"
    with zipfile.ZipFile(folder / "wheels" / "wanted-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("wanted.py", "WHOSE = 'required'\n")
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: wanted\nVersion: 1.0\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", f"wanted.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.mark.usefixtures("hadoop_environment")
def test_master_and_workers_use_nothing_outside_of_their_container(
    hadoop: HadoopCluster, commands: Commands, tmp_path: Path, hdfs_folder: str
) -> None:
    (tmp_path / "modules").mkdir()
    (tmp_path / "modules" / "shipped_module.py").write_text("WHOSE = 'the user'\n")
    (tmp_path / "shipped.txt").write_text("as it is")
    (tmp_path / "tables" / "deep").mkdir(parents=True)
    (tmp_path / "tables" / "deep" / "one.csv").write_text("1,2")
    with file_system_for(hdfs_folder).create(f"{hdfs_folder}/lib/given/too.txt") as given:
        given.write(b"from HDFS")
    files = ("-t", "shipped.txt", "-t", "tables", "-D", f"yarn.provided.lib.dirs={hdfs_folder}/lib")
    session = commands.ok("session", "-d", "-nm", commands.name("environment"), "--env", "auto", *files)
    application = session.application
    content(tmp_path)
    flags = ("-pyfs", "modules/shipped_module.py", "-pyarch", "model.zip#model", "-pyreq", "needs.txt#wheels")
    output = commands.ok("run", "-yid", application, *flags, "facts.py").out
    found = re.search(r"^FACTS (.*)$", output, re.MULTILINE)
    assert found is not None, output
    facts = json.loads(found[1])

    local = str(hadoop.directory / "nm-local-dir")
    assert_inside(facts, local)
    assert any(one.endswith("/lib/libssl.so.3") or "/lib/libssl.so" in one for one in facts["libraries"])
    assert facts["shipped"] == ["the user", "required"]
    assert facts["files"] == ["as it is", "1,2", "0.5", "from HDFS"]

    masters = [
        process
        for process in hadoop.container_processes(application)
        if "am.yarn.application_master" in process.command
    ]
    pythons = [process for process in masters if "/environment/bin/python" in process.command.split()[0]]
    assert len(pythons) == 1
    maps = Path(f"/proc/{pythons[0].pid}/maps").read_text().splitlines()
    libraries = sorted({line.split()[5] for line in maps if ".so" in line})
    assert [one for one in outside(libraries, (f"{local}/",)) if not is_c_runtime(one)] == []
    assert Path(f"/proc/{pythons[0].pid}/exe").resolve().is_relative_to(local)
    secrets = client_secrets(tmp_path / "files", application)
    environment = ask(secrets.rest_address, secrets.rest_token, "/jobmanager/environment")
    assert environment["classpath"]
    assert outside(environment["classpath"], (os.readlink(f"/proc/{pythons[0].pid}/cwd"), f"{local}/")) == []

    commands.ok("session", "-id", application, text="stop\n")
    assert commands.final_status(application) == "SUCCEEDED"


def test_a_job_and_a_program_of_their_own_use_nothing_outside_either(
    hadoop: HadoopCluster, commands: Commands, tmp_path: Path
) -> None:
    (tmp_path / "places.py").write_text(PLACES)
    # Modules of the user with names of the engine's folders and modules.
    for module in ("runtime.py", "layout.py"):
        (tmp_path / "modules").mkdir(exist_ok=True)
        (tmp_path / "modules" / module).write_text('WHOSE = "the user\'s"\n')
    flags = ("-ynm", commands.name("environment"), "-pyfs", "modules/runtime.py,modules/layout.py")
    job = commands.ok("run", "-m", "yarn-cluster", *flags, "places.py")
    attached = ("-D", "execution.attached=true")
    with zipfile.ZipFile(tmp_path / "program.zip", "w") as archive:
        archive.writestr("program/__init__.py", "")
        archive.writestr("program/places.py", PLACES)
    as_module = ("-pyfs", f"{flags[-1]},program.zip", "-pym", "program.places")
    program = commands.ok(
        "run-application", "-t", "yarn-application", *flags[:2], *as_module, *attached, "main"
    )
    found: list[str] = []

    def told() -> bool:
        logs = "\n".join(hadoop.container_logs(program.application, 1 << 20).values())
        found[:] = re.findall(r"^FACTS (.*)$", logs, re.MULTILINE)
        return len(found) == 2

    commands.eventually(told, "what the program has printed is in the logs")
    found += re.findall(r"^FACTS (.*)$", job.out, re.MULTILINE)
    facts = [json.loads(text) for text in found]
    assert sorted(each["whose"] for each in facts) == ["main", "worker", "worker"]
    for each in facts:
        assert_inside(each, str(hadoop.directory / "nm-local-dir"))
    for outcome in (job, program):
        assert commands.final_status(outcome.application) == "SUCCEEDED"


def test_functions_run_in_the_interpreter_of_an_archive_of_the_job(
    hadoop: HadoopCluster, commands: Commands, tmp_path: Path
) -> None:
    (tmp_path / "interpreters.py").write_text(INTERPRETERS)
    zipped_environment(tmp_path)
    name = ("-ynm", commands.name("interpreter"))
    flags = ("-pyarch", "venv.zip#env", "-pyexec", "env/venv/bin/python")
    job = commands.ok("run", "-m", "yarn-cluster", *name, *flags, "interpreters.py")
    path = "venv.zip/venv/bin/python"
    both = ("-pyarch", "venv.zip", "-pyexec", path, "-pyclientexec", path)
    attached = ("-t", "yarn-application", "-D", "execution.attached=true")
    program = commands.ok("run-application", *attached, *name, *both, "-py", "interpreters.py")
    printed: list[str] = []

    def told() -> bool:
        printed[:] = hadoop.container_logs(program.application, 1 << 20).values()
        return "WHERE {" in "\n".join(printed)

    commands.eventually(told, "what the program has printed is in the logs")
    for text, folder in ((job.out, "env"), ("\n".join(printed), "venv.zip")):
        found = re.search(r"^WHERE (.*)$", text, re.MULTILINE)
        assert found is not None, text
        facts = json.loads(found[1])
        assert facts["executable"] == f"{facts['folder']}/{folder}/venv/bin/python"
        assert facts["prefix"] == f"{facts['folder']}/{folder}/venv"
        assert re.search(r"/container_[^/]*/yarrow-te-", facts["folder"])
    main = re.search(r"^MAIN (.*)$", "\n".join(printed), re.MULTILINE)
    assert main is not None
    facts = json.loads(main[1])
    assert facts["executable"] == f"{facts['folder']}/usrlib/interpreters/{path}"
    assert re.search(r"/container_[^/]*$", facts["folder"])


def test_containers_that_never_start_are_bounded_and_their_cause_is_told(
    hadoop: HadoopCluster, commands: Commands
) -> None:
    """A variable that no Python starts with: the process ends before anything of ours has run."""
    broken = ("-yD", "containerized.taskmanager.env.PYTHONMALLOC=no-such-allocator")
    limits = (
        *("-yD", "slot.request.timeout=40 s", "-yD", "resourcemanager.start-worker.max-failure-rate=2"),
        *("-yD", "resourcemanager.start-worker.retry-interval=15 s", "-yD", "yarn.environment=none"),
    )
    flags = ("-ynm", commands.name("never-starts"), *broken, *limits)
    outcome = commands("run", "-m", "yarn-cluster", *flags, "doubles.py")
    assert outcome.status == 1
    for said in (
        "no slots within 40 s",
        "did not start",
        "its output ends: Fatal Python error",
        "PYTHONMALLOC",
    ):
        assert said in outcome.err
    assert commands.final_status(outcome.application) == "FAILED"
    diagnostics = str(hadoop.application(outcome.application)["diagnostics"])
    assert "PYTHONMALLOC" in diagnostics
    logs = str(hadoop.container_logs(outcome.application))
    asked = set(re.findall(r"container_\d+_\d+_\d+_\d{6}", logs))
    # The master's, three until the rate is exceeded, then one for each pause; fewer where each takes long to start.
    assert 2 <= len(asked) <= 8


@pytest.mark.usefixtures("hadoop_environment")
def test_the_second_submission_uploads_nothing(hadoop: HadoopCluster) -> None:
    said: list[str] = []
    config = Settings({"yarn.environment": "auto"})
    first = prepare(config, said.append)
    said.clear()
    second = prepare(config, said.append)
    # Somebody may have edited the engine meanwhile; the large archive is the same all the same.
    assert second.archives[:2] == first.archives[:2]
    assert not [line for line in said if line.startswith("Packing")]
    if not said:
        assert second == first
    for archive in second.archives:
        assert archive.shared
        assert archive.source.startswith(f"{hadoop.hdfs_url}/user/")
        assert file_system_for(archive.source).status(archive.source).size > 0
