"""State backends as a program names them, today's names and the old ones, become configuration that RocksDB reads."""

from __future__ import annotations

import pytest

from yarrow.container.state.rocksdb.memory import slot_memory
from yarrow.container.state.rocksdb.options import database_settings
from yarrow.datastream import (
    CustomStateBackend,
    EmbeddedRocksDBStateBackend,
    FsStateBackend,
    HashMapStateBackend,
    MemoryStateBackend,
    PredefinedOptions,
    RocksDBStateBackend,
    StateBackend,
)
from yarrow.datastream.state_backend import backend_settings
from yarrow.runtime.config.options import checkpointing, rocksdb
from yarrow.runtime.config.settings import Settings

MIB = 1024 * 1024


def test_what_a_backend_leaves_open_is_left_to_the_configuration() -> None:
    assert backend_settings(HashMapStateBackend()) == {"state.backend.type": "hashmap"}
    plain = EmbeddedRocksDBStateBackend()
    assert backend_settings(plain) == {"state.backend.type": "rocksdb"}
    assert plain.get_predefined_options() is PredefinedOptions.DEFAULT
    assert plain.get_number_of_transfer_threads() == 4
    backend = EmbeddedRocksDBStateBackend(True)
    backend.set_db_storage_paths("/fast disk/a", "/b:c")
    backend.set_predefined_options(PredefinedOptions.SPINNING_DISK_OPTIMIZED_HIGH_MEM)
    assert backend.get_predefined_options() is PredefinedOptions.SPINNING_DISK_OPTIMIZED_HIGH_MEM
    backend.set_number_of_transfer_threads(7)
    assert backend.get_number_of_transfer_threads() == 7
    settings = Settings(backend_settings(backend))
    assert settings.get(checkpointing.INCREMENTAL)
    assert settings.get(rocksdb.LOCAL_DIR) == ("/fast disk/a", "/b:c")
    assert settings.get(rocksdb.TRANSFER_THREADS) == 7
    assert database_settings(settings).target_file_size == 256 * MIB


def test_folders_may_be_uris() -> None:
    backend = EmbeddedRocksDBStateBackend()
    backend.set_db_storage_paths("file:///data/rocks", "/b:c", "file:/d", "file://localhost/e")
    assert backend.get_db_storage_paths() == ["/data/rocks", "/b:c", "/d", "/e"]
    assert Settings(backend_settings(backend)).get(rocksdb.LOCAL_DIR) == ("/data/rocks", "/b:c", "/d", "/e")
    backend.set_db_storage_paths()
    assert backend.get_db_storage_paths() is None


@pytest.mark.differs(
    "EmbeddedRocksDBStateBackend.set_db_storage_paths", told="Folders of RocksDB are absolute"
)
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("hdfs:///rocks", "is no local folder: pass /path or file:///path"),
        ("file://host/rocks", "is no local folder"),
        ("rocks", "is no absolute path"),
        ("file:rocks", "is no absolute path"),
        ("", "is no absolute path: name local folders, or pass nothing"),
    ],
)
def test_folders_that_no_worker_could_use_are_refused(path: str, message: str) -> None:
    with pytest.raises(ValueError, match=f"^'{path}' of set_db_storage_paths {message}"):
        EmbeddedRocksDBStateBackend().set_db_storage_paths("/a", path)


def test_old_names_bring_their_checkpoint_storage() -> None:
    memory = Settings(backend_settings(MemoryStateBackend(1000)))
    assert memory.get(checkpointing.STORAGE) == "jobmanager"
    assert memory.get(checkpointing.JOB_MANAGER_MAX_STATE_SIZE).bytes == 1000
    assert Settings(backend_settings(MemoryStateBackend())).get(
        checkpointing.JOB_MANAGER_MAX_STATE_SIZE
    ).bytes == 5 * MIB  # fmt: skip
    with pytest.raises(ValueError, match="max_state_size must be positive, not 0"):
        MemoryStateBackend(0)
    files = backend_settings(FsStateBackend("hdfs:///c", "hdfs:///s", 1024))
    settings = Settings(files)
    assert (settings.get(checkpointing.STATE_BACKEND), settings.get(checkpointing.DIRECTORY)) == (
        "hashmap",
        "hdfs:///c",
    )
    assert settings.get(checkpointing.SAVEPOINT_DIRECTORY) == "hdfs:///s"
    assert settings.get(checkpointing.DATA_INLINE_THRESHOLD).bytes == 1024
    old = backend_settings(RocksDBStateBackend("hdfs:///c", False))
    assert (old["state.backend.type"], old["execution.checkpointing.dir"]) == ("rocksdb", "hdfs:///c")
    assert old["execution.checkpointing.incremental"] == "false"
    over = backend_settings(RocksDBStateBackend(checkpoint_stream_backend=FsStateBackend("file:///f")))
    assert (over["state.backend.type"], over["execution.checkpointing.dir"]) == ("rocksdb", "file:///f")
    with pytest.raises(ValueError, match="checkpoint_data_uri"):
        RocksDBStateBackend()


def test_backends_that_no_worker_could_make_are_refused() -> None:
    assert backend_settings(CustomStateBackend("mine:backend")) == {"state.backend.type": "mine:backend"}
    with pytest.raises(ValueError, match="module:name"):
        backend_settings(CustomStateBackend())
    with pytest.raises(TypeError, match="StateBackend does not say"):
        backend_settings(StateBackend())


def test_options_given_by_themselves_come_before_the_predefined_set() -> None:
    chosen = {"state.backend.rocksdb.predefined-options": "spinning-disk-optimized-high-mem"}
    own = {
        "state.backend.rocksdb.compaction.level.target-file-size-base": "32 mb",
        "state.backend.rocksdb.writebuffer.size": "8 mb",
        "state.backend.rocksdb.use-bloom-filter": "false",
    }
    found = database_settings(Settings(chosen | own))
    assert (found.target_file_size, found.level_base) == (32 * MIB, 1024 * MIB)
    assert (found.write_buffer_size, found.bloom_bits, found.background_threads) == (8 * MIB, 0.0, 4)
    assert database_settings(Settings({})).background_threads == 2


def test_the_memory_of_a_slot_is_given_or_a_part_of_its_budget() -> None:
    given = {"state.backend.rocksdb.memory.fixed-per-slot": "64 mb"}
    assert slot_memory(Settings(given)).bytes == 64 * MIB
    budget = {"taskmanager.memory.process.size": "2 gb", "taskmanager.numberOfTaskSlots": "1"}
    doubled = {"taskmanager.memory.process.size": "4 gb", "taskmanager.numberOfTaskSlots": "1"}
    assert 0 < slot_memory(Settings(budget)).bytes < slot_memory(Settings(doubled)).bytes < 2048 * MIB
