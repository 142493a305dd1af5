"""Cached files in a worker: paths by name, folders unpacked, executables, and names that are not registered."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.unit.container.worker.test_user_paths import graph
from yarrow.container.worker.cached_files import with_cached_files
from yarrow.datastream.functions.distributed_cache import DistributedCache
from yarrow.runtime.graph.executor import LocalFile
from yarrow.runtime.graph.job_graph import ShippedFile, UserCode
from yarrow.runtime.graph.shipped_files import payload_of


def fetched(folder: Path, *files: LocalFile) -> dict[str, str]:
    """Paths by name, of files as a TaskExecutor has fetched them."""
    folder.mkdir()
    paths, shipped = {}, []
    for number, file in enumerate(files):
        place = folder / str(number)
        place.write_bytes(payload_of(file))
        paths[f"key {number}"] = str(place)
        shipped.append(
            ShippedFile(
                name=file.name,
                kind=file.kind,
                blob_key=f"key {number}",
                is_folder=Path(file.path).is_dir(),
                executable=file.executable,
            )
        )
    found = with_cached_files(graph(UserCode(files=tuple(shipped))), paths)
    return {file.name: file.local_path for file in found.user_code.files if file.local_path}


def cached(path: Path, name: str, *, executable: bool = False) -> LocalFile:
    return LocalFile(name=name, kind="cached_file", path=str(path), executable=executable)


def test_a_cached_file_is_where_it_was_fetched(tmp_path: Path) -> None:
    table, module = tmp_path / "table.csv", tmp_path / "module.py"
    table.write_text("a,1")
    module.touch()
    shipped = LocalFile(name="module.py", kind="python_file", path=str(module))
    paths = fetched(tmp_path / "fetched", cached(table, "rates"), shipped)
    assert paths.keys() == {"rates"}
    assert Path(paths["rates"]).read_text() == "a,1"


def test_a_cached_folder_is_unpacked_once(tmp_path: Path) -> None:
    model = tmp_path / "model"
    (model / "layers").mkdir(parents=True)
    # A package, too, is a folder like any other here.
    (model / "__init__.py").touch()
    (model / "layers" / "first").write_text("weights")
    paths = fetched(tmp_path / "fetched", cached(model, "model"))
    assert (Path(paths["model"]) / "layers" / "first").read_text() == "weights"
    assert (Path(paths["model"]) / "__init__.py").exists()
    file = ShippedFile(name="model", kind="cached_file", blob_key="key 0", is_folder=True)
    again = with_cached_files(graph(UserCode(files=(file,))), {"key 0": str(tmp_path / "fetched" / "0")})
    assert again.user_code.files[0].local_path == paths["model"]


def test_an_executable_may_be_run(tmp_path: Path) -> None:
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\n")
    paths = fetched(tmp_path / "fetched", cached(tool, "tool", executable=True), cached(tool, "text"))
    assert os.access(paths["tool"], os.X_OK)
    assert not os.access(paths["text"], os.X_OK)


def test_a_file_that_was_not_registered_is_named(tmp_path: Path) -> None:
    cache = DistributedCache({"rates": "/rates"})
    assert cache.get_file("rates") == "/rates"
    with pytest.raises(KeyError, match="no cached file is named 'rate'; registered are: 'rates'"):
        cache.get_file("rate")
