"""A packed environment runs where it was unpacked and uses nothing of the one that it was packed from."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
import venv
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

import yarrow
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.environment import PreparedEnvironment, prepare
from yarrow.runtime.yarn.environment_libraries import is_c_runtime
from yarrow.runtime.yarn.gateways import YarnError

#: Packs the environment that runs it into a local folder; prints target and path of each archive.
_PACK = """
import json, sys
from pathlib import Path
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.yarn.environment import packed_archives
from yarrow.runtime.yarn.environment_store import EnvironmentMemory, EnvironmentStore

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
import msgspec, users_project, yarrow.am.errors, yarrow.container.errors, yarrow.runtime
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


@pytest.fixture(scope="module")
def container(packed: Packed, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder laid out as YARN would: archives unpacked in a cache, links under the names of their targets."""
    working = tmp_path_factory.mktemp("container")
    for number, (target, path) in enumerate(packed.archives.items()):
        cache = tmp_path_factory.mktemp(f"filecache{number}") / os.path.basename(path)
        cache.mkdir()
        with tarfile.open(path) as archive:
            archive.extractall(cache, filter="fully_trusted")
        (working / target).symlink_to(cache)
    return working


@pytest.fixture(scope="module")
def facts(container: Path) -> dict[str, object]:
    run = subprocess.run(
        ["env", "-i", "environment/bin/python3", "-P", "-c", _FACTS],
        capture_output=True, text=True, timeout=60, cwd=container,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return dict(json.loads(run.stdout))


def places(container: Path) -> tuple[str, ...]:
    return (f"{container}/", *(f"{link.resolve()}/" for link in container.iterdir()))


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
        ["env", "-i", "environment/bin/python3", "-c", program], capture_output=True, text=True, cwd=container
    )
    assert run.stdout.strip() == f"{container}/environment", run.stderr


def test_users_modules_in_the_working_directory_are_found_by_nobody(container: Path) -> None:
    """What a start script adds: with PYTHONSAFEPATH the container's folder is on no path."""
    prepared = prepare(Settings({"yarn.environment": "none"}), print)
    (container / "json.py").write_text("raise ImportError('the user\\'s own')\n")
    try:
        run = subprocess.run(
            ["environment/bin/python3", "-m", "yarrow.runtime.yarn.layout"],
            capture_output=True, text=True, timeout=60, cwd=container, env=dict(prepared.variables),
        )  # fmt: skip
        assert run.returncode == 0, run.stderr
    finally:
        (container / "json.py").unlink()


def test_the_second_time_nothing_is_packed_and_an_edit_packs_the_edited_alone(
    small_environment: str, packed: Packed, container: Path
) -> None:
    project = Path(small_environment).parent.parent.parent / "project" / "users_project"
    (project / "another.py").write_text("")
    edited = pack(small_environment, packed.folder)
    assert [line.split()[0] for line in packed.said] == ["Packing", "Packed", "Packed"]
    assert [line.split()[0] for line in edited.said] == ["Packed"]
    assert edited.archives["environment"] == packed.archives["environment"]
    assert edited.archives["environment-editable"] != packed.archives["environment-editable"]


def test_none_is_the_clients_interpreter() -> None:
    prepared = prepare(Settings({"yarn.environment": "none"}), print)
    assert prepared == PreparedEnvironment((), sys.executable, {"PYTHONSAFEPATH": "1"})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("/home/me/env.tar.gz", "which nodes cannot see: use `auto`"),
        ("conda", "an archive on HDFS, hdfs://host:port/env.tar.gz"),
        ("hdfs://127.0.0.1:1/env.rpm", "does not unpack: the name of an archive ends in .tar.gz"),
    ],
)
def test_values_that_name_no_environment_are_refused(value: str, message: str) -> None:
    with pytest.raises(YarnError, match=message) as refused:
        prepare(Settings({"yarn.environment": value}), print)
    assert str(refused.value).startswith("yarn.environment is ")
