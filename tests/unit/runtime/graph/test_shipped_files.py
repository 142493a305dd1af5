"""What is sent of the files of a program, and the shape of the cluster that a job needs."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import pytest

from yarrow.datastream import StreamExecutionEnvironment
from yarrow.embedded.cluster_shape import ClusterShape, embedded_settings, shape_for_job
from yarrow.runtime.config.options import rpc, taskmanager
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import MemoryBudgetError
from yarrow.runtime.fs.client_folder import ClientFolder, remove_abandoned
from yarrow.runtime.graph.executor import LocalFile
from yarrow.runtime.graph.shipped_files import payload_of, ship_files


def names_in(payload: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(payload)) as archive:
        return archive.namelist()


def test_modules_and_packages_keep_their_names(tmp_path: Path) -> None:
    module = tmp_path / "tools.py"
    module.write_text("A = 1\n")
    package = tmp_path / "pack"
    (package / "inner").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "inner" / "x.py").touch()
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.pyc").touch()
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "y.py").touch()

    def shipped(path: Path) -> list[str]:
        return names_in(payload_of(LocalFile(name=path.name, kind="python_file", path=str(path))))

    assert shipped(module) == ["tools.py"]
    assert shipped(package) == ["pack/__init__.py", "pack/inner/x.py"]
    assert shipped(folder) == ["y.py"]


def test_other_files_travel_as_they_are_and_equal_files_are_equal(tmp_path: Path) -> None:
    data = tmp_path / "model.bin"
    data.write_bytes(b"\x00\x01")
    assert payload_of(LocalFile(name="m", kind="cached_file", path=str(data))) == b"\x00\x01"
    module = tmp_path / "tools.py"
    module.write_text("A = 1\n")
    file = LocalFile(name="tools.py", kind="python_file", path=str(module))
    first = payload_of(file)
    module.touch()
    assert payload_of(file) == first


def job(**groups: int) -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.create_local_environment(1)
    stream = env.from_sequence(1, 2)
    for name, parallelism in groups.items():
        stream = stream.map(lambda x: x).set_parallelism(parallelism).slot_sharing_group(name)
    stream.print()
    return env


def test_files_are_named_by_the_keys_they_are_stored_under(tmp_path: Path) -> None:
    data = tmp_path / "a.txt"
    data.write_text("x")
    file = LocalFile(name="a", kind="cached_file", path=str(data))
    graph = ship_files(job().get_job_graph(), [file], lambda payload: payload.decode() + "-key")
    assert [(shipped.name, shipped.blob_key) for shipped in graph.user_code.files] == [("a", "x-key")]


def test_a_job_gets_the_slots_of_its_groups() -> None:
    graph = job(one=3, two=2).get_job_graph()
    assert shape_for_job(graph, Settings()) == ClusterShape(6, 1, True, True)
    two_each = Settings({"taskmanager.numberOfTaskSlots": 4, "execution.in-process": True})
    assert shape_for_job(graph, two_each) == ClusterShape(4, 2, False, True)


def test_memory_grows_with_the_slots_unless_it_is_set() -> None:
    roomy = embedded_settings(Settings(), 16)
    assert roomy.get(taskmanager.PROCESS_SIZE).bytes == (192 + 16 * 512) << 20
    assert roomy.get(rpc.HEARTBEAT_INTERVAL).seconds == 1
    with pytest.raises(MemoryBudgetError):
        embedded_settings(Settings({"taskmanager.memory.process.size": "500 mb"}), 16)


def test_folders_of_processes_that_are_gone_are_removed(tmp_path: Path) -> None:
    living = ClientFolder(str(tmp_path))
    abandoned = tmp_path / "yarrow-embedded-old"
    abandoned.mkdir()
    (abandoned / "lock").touch()
    unfinished = tmp_path / "yarrow-embedded-new"
    unfinished.mkdir()
    assert remove_abandoned(str(tmp_path)) == [abandoned]
    assert Path(living.path).stat().st_mode & 0o777 == 0o700
    assert unfinished.exists()
    living.remove()
    assert not Path(living.path).exists()
