"""Which files an environment is made of: the engine as its wheel holds it, editable installs, what stays behind."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import yarrow
from yarrow.client.yarn.environment import environment_files as subject
from yarrow.client.yarn.environment.environment_files import EnvironmentPart, environment_files
from yarrow.client.yarn.environment.environment_libraries import (
    is_c_runtime,
    libraries_outside,
    read_dynamic_section,
)

ROOT = Path(yarrow.__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def editable() -> dict[str, str]:
    return {file.target: file.source for file in environment_files(EnvironmentPart.EDITABLE)}


@pytest.fixture(scope="module")
def packages() -> dict[str, str]:
    return {file.target: file.source for file in environment_files(EnvironmentPart.PACKAGES)}


def engine_modules(files: dict[str, str]) -> set[str]:
    return {target for target in files if target.startswith("yarrow/") and target.endswith(".py")}


def test_the_engine_is_packed_as_its_wheel_would_hold_it(editable: dict[str, str]) -> None:
    """The packages are those that pyproject.toml tells setuptools to find."""
    names = import_module("setuptools").find_packages(str(ROOT), include=["yarrow", "yarrow.*"])
    expected = {
        f"{name.replace('.', '/')}/{module.name}"
        for name in names
        for module in (ROOT / name.replace(".", "/")).glob("*.py")
    }
    # Somebody may write a module just now.
    assert not {target for target in engine_modules(editable) ^ expected if (ROOT / target).exists()}
    assert {
        "yarrow/am/control_plane.py",
        "yarrow/container/worker/worker.py",
        "yarrow/runtime/__init__.py",
    } <= expected
    assert "yarrow/py.typed" in editable
    assert "yarrow/runtime/config/flink_keys.json" in editable


def test_a_checkout_brings_nothing_but_its_package(editable: dict[str, str]) -> None:
    assert not [target for target in editable if target.split("/")[0] in ("tests", "am", "runtime", "bench")]
    assert not [target for target in editable if "__pycache__" in target]


def test_packages_hold_interpreter_and_standard_library_and_not_what_nobody_imports(
    packages: dict[str, str],
) -> None:
    library, installed = subject.STANDARD_LIBRARY, subject.PACKAGES
    assert {f"bin/{subject.PYTHON_NAME}", f"{library}/os.py", f"{installed}/msgspec/__init__.py"} <= set(
        packages
    )
    assert any(target.startswith(f"{library}/lib-dynload/_ssl.") for target in packages)
    parts = {tuple(target.split("/")[3:5]) for target in packages if target.startswith(f"{installed}/")}
    assert ("pyspark", "jars") not in parts
    assert not parts & {("pandas", "tests"), ("pyarrow", "tests"), ("pyarrow", "include")}
    assert ("pyspark", "__init__.py") in parts
    assert not [
        target for target in packages if target.startswith((f"{library}/test/", f"{library}/tkinter/"))
    ]
    assert not [
        target for target in packages if "__editable__" in target or target.endswith("/direct_url.json")
    ]


def test_jars_of_spark_are_a_part_of_their_own() -> None:
    jars = environment_files(EnvironmentPart.SPARK_JARS)
    assert jars
    assert all(file.target.endswith(".jar") and not file.target.startswith("/") for file in jars)
    assert any(file.target.startswith("spark-core_") for file in jars), "they lie at the root"


def test_what_setuptools_is_needed_for_keeps_it(tmp_path: Path) -> None:
    metadata = tmp_path / "thing-1.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Name: thing\nRequires-Dist: setuptools>=40 ; extra == 'test'\n")
    assert "setuptools" in subject._unused_packages([str(tmp_path)])
    metadata.write_text("Name: thing\nRequires-Dist: setuptools>=40\n")
    assert "setuptools" not in subject._unused_packages([str(tmp_path)])


def test_editable_installs_of_both_kinds_are_resolved(tmp_path: Path) -> None:
    project = tmp_path / "project"
    (project / "mapped").mkdir(parents=True)
    (project / "mapped" / "__init__.py").write_text("")
    (project / "mapped" / "data.bin").write_bytes(b"1")
    (project / "src" / "listed").mkdir(parents=True)
    (project / "src" / "listed" / "__init__.py").write_text("")
    (project / "src" / "single.py").write_text("")
    (project / "src" / "setup.py").write_text("")
    (project / "src" / "notes").mkdir()
    (project / "src" / "notes" / "draft.py").write_text("")
    site = tmp_path / "site"
    site.mkdir()
    finder = "__editable___project_1_finder.py"
    (site / finder).write_text(f"MAPPING = {{'mapped': {str(project / 'mapped')!r}}}\n")
    (site / "listed.pth").write_text(f"{project / 'src'}\n# a comment\nimport os\n")
    (site / "inner").mkdir()
    (site / "own.pth").write_text("inner\n/nowhere\n")
    found = {file.target for file in subject._editable(str(site)) if not file.target.startswith("yarrow/")}
    assert found == {"mapped/__init__.py", "mapped/data.bin", "listed/__init__.py", "single.py"}


def test_names_of_the_c_runtime() -> None:
    runtime = [
        "libc.so.6",
        "libm.so.6",
        "ld-linux-x86-64.so.2",
        "libpthread.so.0",
        "libdl.so.2",
        "librt.so.1",
    ]
    assert all(
        is_c_runtime(name) for name in [*runtime, "libresolv.so.2", "libutil.so.1", "/lib/libnss_dns.so.2"]
    )
    others = [
        "libcrypto.so.3",
        "libz.so.1",
        "libcrypt.so.1",
        "libstdc++.so.6",
        "libmsgpack.so.2",
        "libnsl.so.2",
    ]
    assert not any(is_c_runtime(name) for name in others)


def test_needed_libraries_are_those_that_the_loader_finds() -> None:
    """The closure of the `_ssl` module, against what the loader itself says."""
    import _ssl

    expected = {}
    for line in subprocess.run(
        ["ldd", _ssl.__file__], capture_output=True, text=True, check=True
    ).stdout.splitlines():
        name, arrow, path = line.strip().partition(" => ")
        if arrow and not is_c_runtime(name):
            expected[name] = os.path.realpath(path.split(" ")[0])
    assert expected
    assert libraries_outside([_ssl.__file__], ["/nowhere"]) == expected


def test_files_that_are_no_elf_objects_ask_for_nothing(tmp_path: Path) -> None:
    script = tmp_path / "thing.so"
    script.write_text("GROUP ( libc.so.6 )")
    assert read_dynamic_section(str(script)) is None
    (tmp_path / "empty.so").write_bytes(b"")
    assert read_dynamic_section(str(tmp_path / "empty.so")) is None
    section = read_dynamic_section(os.path.realpath(sys.executable))
    assert section is not None
    assert any(name.startswith("libc.") for name in section.needed)
