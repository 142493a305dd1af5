"""A packed environment runs where it was unpacked and uses nothing of the one that it was packed from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

import yarrow
from yarrow.client.yarn.environment.environment import PreparedEnvironment, prepare
from yarrow.client.yarn.environment.environment_libraries import is_c_runtime
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import YarnError

#: Each needs an environment that is made and packed.
pytestmark = pytest.mark.slow

#: Packs the environment that runs it into a local folder; prints target and path of each archive.
_PACK = """
import json, sys
from pathlib import Path
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.client.yarn.environment.environment import packed_archives
from yarrow.client.yarn.environment.environment_store import EnvironmentMemory, EnvironmentStore

folder = Path(sys.argv[1])
said = []
archives = packed_archives(
    EnvironmentStore(str(folder / "store"), RandomIdFactory(), SystemClock()),
    EnvironmentMemory(folder / "memory.json"),
    said.append,
)
print(json.dumps({"said": said, "archives": {archive.target: archive.source for archive in archives}}))
"""
#: Imports what brings libraries of the system, and tells where all came from.
_FACTS = """
import bz2, ctypes, json, lzma, sqlite3, ssl, sys, zlib
import msgspec, users_project, yarrow.am.execution.errors, yarrow.container.protocol.errors, yarrow.runtime
with open("/proc/self/maps") as maps:
    libraries = {line.split()[5] for line in maps if ".so" in line}
modules = {name: module.__file__ for name, module in sys.modules.items() if getattr(module, "__file__", None)}
print(json.dumps({
    "base_prefix": sys.base_prefix, "path": sys.path, "libraries": sorted(libraries), "executable": sys.executable,
    "modules": modules, "cached": users_project.__cached__, "code": users_project.here.__code__.co_filename,
}))
"""


@pytest.fixture(scope="module")
def small_environment(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The interpreter of a virtual environment with one package, an editable one and the engine's checkout."""
    folder = tmp_path_factory.mktemp("client")
    venv.create(folder / "venv", symlinks=True)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    shutil.copytree(Path(msgspec.__file__).parent, site / "msgspec")
    project = folder / "project" / "users_project"
    project.mkdir(parents=True)
    (project / "__init__.py").write_text("def here():\n    pass\n")
    (site / "project.pth").write_text(f"{project.parent}\n{Path(yarrow.__file__).resolve().parent.parent}\n")
    return str(folder / "venv" / "bin" / "python3")


@dataclass(frozen=True)
class Packed:
    """What a client has packed, and where."""

    folder: Path
    said: list[str]
    archives: dict[str, str]


def pack(interpreter: str, folder: Path) -> Packed:
    run = subprocess.run(
        [interpreter, "-P", "-c", _PACK, str(folder)], capture_output=True, text=True, timeout=120, cwd=folder
    )
    assert run.returncode == 0, run.stderr
    return Packed(folder, **json.loads(run.stdout))


@pytest.fixture(scope="module")
def packed(small_environment: str, tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return pack(small_environment, tmp_path_factory.mktemp("packed"))


def lay_out(packed: Packed, caches: Path, working: Path) -> Path:
    """A container's folder as YARN makes it: files in folders of a cache, links under the names of their targets."""
    working.mkdir()
    for number, (target, path) in enumerate(packed.archives.items()):
        cached = caches / str(number) / os.path.basename(path)
        if not cached.exists():
            cached.parent.mkdir(parents=True)
            shutil.copy(path, cached)
            cached.chmod(0o500)
        (working / target).symlink_to(cached)
    return working


@pytest.fixture(scope="module")
def caches(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("filecache")


@pytest.fixture(scope="module")
def container(packed: Packed, caches: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return lay_out(packed, caches, tmp_path_factory.mktemp("node") / "container")


@pytest.fixture(scope="module")
def facts(container: Path) -> dict[str, object]:
    run = subprocess.run(
        ["env", "-i", "./yarrow-python", "-P", "-c", _FACTS],
        capture_output=True, text=True, timeout=60, cwd=container,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


def places(container: Path) -> tuple[str, ...]:
    return (f"{container}/", *(f"{link.resolve()}/" for link in container.iterdir()))


@pytest.mark.slow
def test_interpreter_path_and_modules_lie_in_the_container(container: Path, facts: dict[str, object]) -> None:
    inside = places(container)
    path, modules = facts["path"], facts["modules"]
    assert isinstance(path, list)
    assert isinstance(modules, dict)
    assert facts["base_prefix"] == str(container / "environment")
    assert str(facts["executable"]).startswith(inside)
    assert [entry for entry in path if not entry.startswith(inside)] == []
    assert {name: file for name, file in modules.items() if not file.startswith(inside)} == {}


def test_libraries_outside_the_c_runtime_lie_in_the_container(
    container: Path, facts: dict[str, object]
) -> None:
    libraries = facts["libraries"]
    assert isinstance(libraries, list)
    assert [one for one in libraries if not one.startswith(places(container)) and not is_c_runtime(one)] == []
    packed = {os.path.basename(one).split(".so")[0] for one in libraries if one.startswith(places(container))}
    assert {"libssl", "libcrypto", "libz"} <= packed


def test_modules_are_compiled_and_tell_where_they_are(facts: dict[str, object]) -> None:
    assert os.path.exists(str(facts["cached"]))
    assert os.path.exists(str(facts["code"]))


def test_it_starts_from_any_folder_and_under_any_variables(container: Path) -> None:
    for command, variables in (
        ([f"{container}/yarrow-python"], {"PYTHONHOME": "/nowhere"}),
        ([f"{container}/environment/bin/python3"], {"PYTHONHOME": "/nowhere"}),
        ([f"{container}/environment/bin/python"], {"LD_LIBRARY_PATH": "/nowhere"}),
        (["python3"], {"PATH": f"{container}/environment/bin"}),
    ):
        run = subprocess.run(
            [*command, "-c", "import ssl, sys; print(sys.base_prefix)"],
            capture_output=True, text=True, timeout=60, cwd="/", env=variables,
        )  # fmt: skip
        assert run.stdout.strip() == f"{container}/environment", run.stderr


def test_a_child_started_by_sys_executable_is_the_same_environment(container: Path) -> None:
    program = (
        "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import ssl, sys; print(sys.prefix)'])"
    )
    run = subprocess.run(
        ["env", "-i", "./yarrow-python", "-c", program], capture_output=True, text=True, cwd=container
    )
    assert run.stdout.strip() == f"{container}/environment", run.stderr


def test_users_modules_in_the_working_directory_are_found_by_nobody(container: Path) -> None:
    """What a start script adds: with PYTHONSAFEPATH the container's folder is on no path."""
    prepared = prepare(Settings({"yarn.environment": "none"}), print)
    (container / "json.py").write_text("raise ImportError('the user\\'s own')\n")
    try:
        run = subprocess.run(
            ["./yarrow-python", "-m", "yarrow.runtime.yarn.layout"],
            capture_output=True, text=True, timeout=60, cwd=container, env=dict(prepared.variables),
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
    finally:
        (container / "json.py").unlink()


@pytest.mark.slow
def test_the_second_time_nothing_is_packed_and_an_edit_packs_the_edited_alone(
    small_environment: str, packed: Packed, container: Path
) -> None:
    project = Path(small_environment).parent.parent.parent / "project" / "users_project"
    (project / "another.py").write_text("")
    edited = pack(small_environment, packed.folder)
    assert [line.split()[0] for line in packed.said] == ["Packing", "Packed", "Packed"]
    assert [line.split()[0] for line in edited.said] == ["Packed"]
    assert edited.archives["environment.tar.gz"] == packed.archives["environment.tar.gz"]
    assert edited.archives["environment-editable.tar.gz"] != packed.archives["environment-editable.tar.gz"]


def prefix_of(container: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["./yarrow-python", "-c", "import os, ssl, sys; print(os.path.realpath(sys.prefix))"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=container,
    )  # fmt: skip


@pytest.mark.slow
def test_a_node_unpacks_once_whoever_comes_first(packed: Packed, tmp_path: Path) -> None:
    caches = tmp_path / "filecache"
    containers = [lay_out(packed, caches, tmp_path / f"container{number}") for number in range(3)]
    started = [prefix_of(container) for container in containers]
    seen = set()
    for process in started:
        output, errors = process.communicate(timeout=120)
        assert not errors
        seen.add(output.strip())
    assert len(seen) == 1
    assert seen.pop().startswith(f"{caches}/")
    assert not list(caches.rglob("*.part-*"))
    archive = (containers[0] / "environment.tar.gz").resolve()
    before = os.stat(f"{archive}.unpacked").st_ino
    later = lay_out(packed, caches, tmp_path / "later")
    prefix_of(later).communicate(timeout=60)
    assert os.stat(f"{archive}.unpacked").st_ino == before


@pytest.mark.slow
def test_what_a_killed_container_half_unpacked_is_not_used(packed: Packed, tmp_path: Path) -> None:
    container = lay_out(packed, tmp_path / "filecache", tmp_path / "container")
    archive = (container / "environment.tar.gz").resolve()
    half = archive.with_name(f"{archive.name}.unpacked.part-1")
    (half / "bin").mkdir(parents=True)
    output, errors = prefix_of(container).communicate(timeout=120)
    assert output.strip() == f"{archive}.unpacked", errors
    assert not half.exists()


def test_an_archive_that_cannot_be_unpacked_ends_the_container_with_a_sentence(
    packed: Packed, tmp_path: Path
) -> None:
    container = lay_out(packed, tmp_path / "filecache", tmp_path / "container")
    archive = (container / "environment.tar.gz").resolve()
    archive.chmod(0o600)
    archive.write_bytes(b"no archive")
    process = prefix_of(container)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "environment.tar.gz cannot be unpacked on" in errors
    assert not list(tmp_path.rglob("*.part-*"))


def test_none_is_the_clients_interpreter() -> None:
    prepared = prepare(Settings({"yarn.environment": "none"}), print)
    assert prepared == PreparedEnvironment((), sys.executable, {"PYTHONSAFEPATH": "1"})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("/archives/env.tar.gz", "which nodes cannot see: use `auto`"),
        ("conda", "an archive on HDFS, hdfs://host:port/env.tar.gz"),
        ("hdfs://127.0.0.1:1/env.rpm", "does not unpack: the name of an archive ends in .tar.gz"),
    ],
)
def test_values_that_name_no_environment_are_refused(value: str, message: str) -> None:
    with pytest.raises(YarnError, match=message) as refused:
        prepare(Settings({"yarn.environment": value}), print)
    assert str(refused.value).startswith("yarn.environment is ")
