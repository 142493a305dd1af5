"""Where a worker looks for the user's modules, in every mode: none is hidden by the engine, none hides it."""

from __future__ import annotations

import importlib
import sys
import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import yarrow.am
import yarrow.container
import yarrow.runtime
from yarrow.container.worker.job_code import install_user_code
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.job_graph import JobGraph, ShippedFile, UserCode
from yarrow.runtime.yarn import layout

#: Names of the engine's own folders, of modules that it has loaded, and one that is like its name.
NAMES = ("runtime", "container", "am", "yarrow_x", "layout")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Search path and loaded modules of this process."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def graph(code: UserCode, configuration: dict[str, str] | None = None) -> JobGraph:
    version = (sys.version_info.major, sys.version_info.minor)
    return JobGraph(
        job_id=JobID("0" * 32),
        name="paths",
        vertices=(),
        edges=(),
        user_code=UserCode(
            python_path=code.python_path,
            files=code.files,
            python_version=version,
            required_modules=code.required_modules,
        ),
        configuration=configuration or {},
    )


def modules_in(folder: Path) -> Path:
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.py").write_text(f"WHOSE = 'the user, {name}'\n")
    return folder


def check_both_are_found() -> None:
    for name in NAMES:
        assert f"the user, {name}" == importlib.import_module(name).WHOSE
    assert importlib.import_module("yarrow.runtime") is yarrow.runtime
    assert importlib.import_module("yarrow.runtime.yarn.layout") is layout
    # What the engine has not loaded yet comes from it all the same.
    errors = importlib.import_module("yarrow.am.execution.errors")
    assert str(errors.__file__).startswith(str(Path(yarrow.am.__file__).parent))
    assert (
        importlib.import_module("yarrow.container.protocol.errors").__name__
        == "yarrow.container.protocol.errors"
    )


def test_shipped_modules_with_the_engines_names(tmp_path: Path) -> None:
    """-pyfs, in session, per-job and application mode: a zip under a number."""
    folder = modules_in(tmp_path / "modules")
    payload = tmp_path / "0"
    with zipfile.ZipFile(payload, "w") as archive:
        for module in folder.iterdir():
            archive.write(module, module.name)
    files = (ShippedFile(name="modules", kind="python_file", blob_key="key", target=None),)
    code = UserCode(files=files, required_modules=NAMES)
    install_user_code(graph(code), {"key": str(payload)}, own_main=False)
    check_both_are_found()


def test_modules_beside_the_program_on_the_clients_host(tmp_path: Path) -> None:
    """Embedded and standalone."""
    folder = modules_in(tmp_path / "modules")
    code = UserCode(python_path=(str(folder),), required_modules=NAMES)
    install_user_code(graph(code), {}, own_main=False)
    check_both_are_found()


def test_what_is_loaded_already_stays_what_it_is(tmp_path: Path) -> None:
    """A user's json.py does not become the engine's."""
    import json

    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "json.py").write_text("raise ImportError('of the user')\n")
    install_user_code(graph(UserCode(python_path=(str(folder),))), {}, own_main=False)
    assert importlib.import_module("json") is json


def test_folders_of_the_client_mean_nothing_on_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(layout.RESOURCE_ID, "taskexecutor-1")
    folder = modules_in(tmp_path / "modules")
    code = UserCode(python_path=(str(folder),), required_modules=("yarrow_x",))
    with pytest.raises(InvalidProgramError, match="Ship the module with add_python_file"):
        install_user_code(graph(code), {}, own_main=False)
    assert str(folder) not in sys.path


def test_a_path_that_was_configured_is_a_nodes_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(layout.RESOURCE_ID, "taskexecutor-1")
    folder = modules_in(tmp_path / "modules")
    code = UserCode(python_path=(str(folder), "/client"), required_modules=NAMES)
    install_user_code(graph(code, {"python.pythonpath": f"/elsewhere:{folder}"}), {}, own_main=False)
    check_both_are_found()


def test_workers_of_one_process_forget_what_was_looked_up_one_after_the_other(tmp_path: Path) -> None:
    """The interpreter does not lock its cache of finders: two threads in it fail with a KeyError."""
    both_inside = threading.Barrier(2)
    met: list[bool] = []

    class Finder:
        def invalidate_caches(self) -> None:
            try:
                both_inside.wait(0.2)
            except threading.BrokenBarrierError:
                met.append(False)
            else:
                met.append(True)

    place = str(tmp_path / "looked-up")
    sys.path_importer_cache[place] = Finder()  # type: ignore[assignment]
    try:
        workers = [
            threading.Thread(
                target=install_user_code, args=(graph(UserCode()), {}), kwargs={"own_main": False}
            )
            for _ in range(2)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        del sys.path_importer_cache[place]
    assert met == [False, False]


def test_an_interpreter_that_the_workers_do_not_have_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A path below some folder is that of this process's interpreter where the two end alike."""
    monkeypatch.setenv("YARROW_PYTHON_EXECUTABLE", "/containers/1/env.zip/bin/python")
    for fits in ("env.zip/bin/python", "./env.zip/bin/python", "../env.zip/bin/python", "python"):
        install_user_code(graph(UserCode(), {"python.executable": fits}), {}, own_main=False)
    for other in ("v.zip/bin/python", "env.zip/bin/python3", "other/env.zip/bin/python", "/no/such/python"):
        with pytest.raises(InvalidProgramError, match=f"asks for the interpreter {other}.*-pyarch"):
            install_user_code(graph(UserCode(), {"python.executable": other}), {}, own_main=False)
    archive = ShippedFile(name="v.zip", kind="archive", blob_key="1")
    brought = graph(UserCode(files=(archive,)), {"python.executable": "v.zip/bin/python"})
    # The TaskExecutor has started this process with it.
    install_user_code(brought, {}, own_main=False)
