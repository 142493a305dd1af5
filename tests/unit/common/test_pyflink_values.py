"""Equality, order and text of settings as PyFlink's programs use them."""

from __future__ import annotations

import pytest

from yarrow.common import Configuration, ExecutionConfig, MemorySize, Row
from yarrow.common.serialization import RowFieldExtractorSchema
from yarrow.datastream import FileSystemCheckpointStorage, JobManagerCheckpointStorage, SlotSharingGroup


def test_amounts_of_memory_compare_fully() -> None:
    small, large = MemorySize.parse("1 kb"), MemorySize.parse("1 mb")
    assert small < large and small <= large and large > small and large >= small
    assert small <= MemorySize(1024) and small >= MemorySize(1024) and small == MemorySize(1024)
    assert sorted([large, small]) == [small, large] and max(small, large) is large
    with pytest.raises(TypeError):
        small < 5  # type: ignore[operator]  # noqa: B015


def test_amounts_of_memory_are_read_in_whole_units() -> None:
    size = MemorySize.parse("3 tb")
    assert size.get_tebi_bytes() == 3 and size.get_gibi_bytes() == 3 * 1024
    assert size.get_mebi_bytes() == 3 << 20 and size.get_kibi_bytes() == 3 << 30
    assert size.get_bytes() == 3 << 40
    less = MemorySize(size.get_bytes() - 1)
    assert (less.get_tebi_bytes(), less.get_gibi_bytes()) == (2, 3 * 1024 - 1)
    assert (less.get_mebi_bytes(), less.get_kibi_bytes()) == ((3 << 20) - 1, (3 << 30) - 1)


def test_configurations_are_equal_hash_alike_and_print_as_flink_does() -> None:
    one = Configuration().set_string("k1", "v1").set_integer("k2", 1)
    other = Configuration().set_integer("k2", 1).set_string("k1", "v1")
    assert one == other and hash(one) == hash(other)
    assert str(one) == "{k1=v1, k2=1}"
    assert one != Configuration() and str(Configuration()) == "{}"
    other.set_string("k1", "v2")
    assert one != other and hash(one) != hash(other)


def test_secrets_are_hidden_in_texts() -> None:
    made = Configuration().set_string("security.ssl.key-password", "hush").set_string("my.Token", "hush")
    assert str(made) == "{security.ssl.key-password=******, my.Token=******}"
    assert "hush" not in repr(made) and "hush" not in str(ExecutionConfig(made))
    assert made.to_dict()["my.Token"] == "hush"


def test_secrets_in_maps_are_hidden_in_texts() -> None:
    config = ExecutionConfig(Configuration()).set_global_job_parameters(
        {"owner": "ada", "db.password": "a,hush"}
    )
    assert "hush" not in repr(config) and "owner:ada,db.password:******" in str(config)
    assert config.get_global_job_parameters()["db.password"] == "a,hush"
    made = Configuration().set_string("a", "x:1,my.token:hush").set_string("b", "'my.token:hush")
    assert "hush" not in repr(made)
    for text in ("hdfs://h/secrets/x", "-Dtoken.file", "x: 1 , secrets"):
        assert f"a={text}" in str(Configuration().set_string("a", text))


def test_execution_configs_are_equal_hash_alike_and_print_what_is_set() -> None:
    one, other = ExecutionConfig().set_parallelism(4), ExecutionConfig().set_parallelism(4)
    assert one == other and hash(one) == hash(other)
    assert str(one) == repr(one) == str(other) == "ExecutionConfig{configuration={parallelism.default=4}}"
    other.set_parallelism(5)
    assert one != other and hash(one) != hash(other)


@pytest.mark.parametrize(
    ("text", "items"),
    [
        (None, []),
        ("", []),
        ("- a\n- b", ["a", "b"]),
        ("\n  - 'a'\n  - \"b;c\"\n", ["a", "b;c"]),
        ("- a", ["a"]),
        ("-a;b", ["-a", "b"]),
        ("[]", []),
    ],
)
def test_lists_are_read_from_nothing_and_from_lines(text: str | None, items: list[str]) -> None:
    assert Configuration.parse_list_value(text) == items


def test_a_slot_sharing_group_without_memory_is_refused() -> None:
    builder = SlotSharingGroup.builder("group")
    with pytest.raises(ValueError, match="task_heap_memory of slot sharing group 'group' must be positive"):
        builder.set_task_heap_memory_mb(0)
    with pytest.raises(ValueError, match="positive"):
        builder.set_task_heap_memory(MemorySize(0))


def test_a_field_is_extracted_as_bytes() -> None:
    schema = RowFieldExtractorSchema(1)
    read = [schema.serialize(Row(0, value)) for value in (b"a", bytearray(b"b"), None)]
    assert read == [b"a", b"b", b""] and {type(each) for each in read} == {bytes}
    with pytest.raises(TypeError, match="field 1 must hold bytes, not str"):
        schema.serialize(Row(0, "text"))


@pytest.mark.parametrize(
    ("path", "kept"),
    [
        ("file:///var/checkpoints/", "file:///var/checkpoints"),
        ("hdfs://host:9000/a/b//", "hdfs://host:9000/a/b"),
        ("/var/checkpoints/", "/var/checkpoints"),
        ("/", "/"),
        ("file:///", "file:///"),
        ("file:/a/", "file:/a"),
        ("file:/", "file:/"),
        ("hdfs://host", "hdfs://host"),
        ("relative/", "relative"),
    ],
)
def test_checkpoint_paths_lose_their_last_slash(path: str, kept: str) -> None:
    assert FileSystemCheckpointStorage(path).get_checkpoint_path() == kept
    assert JobManagerCheckpointStorage(path).get_checkpoint_path() == kept
