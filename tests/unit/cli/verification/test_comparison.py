"""Rows captured in files and compared: as multisets by key, against a plain model."""

from __future__ import annotations

import os
import resource
from collections import Counter
from pathlib import Path
from typing import Any

import cloudpickle
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from yarrow.cli.verification import captured_rows
from yarrow.cli.verification.captured_rows import CapturedRows, KeyOfRows, entries_in
from yarrow.cli.verification.comparison import SHOWN_ROWS, SinkComparison, compare


class Context:
    """What the engine tells a writer."""

    def __init__(self, subtask: int) -> None:
        self.subtask_index = subtask
        self.attempt_number = 0


def written(folder: Path, rows: list[Any], key: KeyOfRows, writers: int = 2) -> Path:
    """Rows written by several writers and committed, some of the commits twice."""
    folder.mkdir(parents=True)
    sink = CapturedRows("the sink", str(folder), key)
    committer = sink.create_committer()
    for subtask in range(writers):
        context: Any = Context(subtask)
        writer = sink.create_writer(context)
        for row in rows[subtask::writers]:
            writer.write([row], None)
        writer.flush(True)
        committables = writer.prepare_commit()
        committer.commit(committables)
        committer.commit(committables)
        writer.close()
    return folder


def compared(
    folder: Path, streaming: list[Any], batch: list[Any], key: KeyOfRows | None = None
) -> SinkComparison:
    key = key or KeyOfRows()
    return compare(
        entries_in(written(folder / "s", streaming, key)),
        entries_in(written(folder / "b", batch, key, writers=3)),
        rows_are_keys=not key.is_known,
    )


BY_FIRST = KeyOfRows(selector=cloudpickle.dumps(lambda row: row[0]))
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 3)), max_size=12)


@settings(max_examples=60, deadline=None)
@given(streaming=ROWS, batch=ROWS, keyed=st.booleans(), run=st.integers(1, 4))
def test_multisets_by_key_agree_with_a_model(
    tmp_path_factory: pytest.TempPathFactory,
    streaming: list[Any],
    batch: list[Any],
    keyed: bool,
    run: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(captured_rows, "RUN_ENTRIES", run)
        patch.setattr(captured_rows, "_BLOCK_ENTRIES", 2)
        found = compared(
            tmp_path_factory.mktemp("rows"), streaming, batch, BY_FIRST if keyed else KeyOfRows()
        )
    one, other = Counter(streaming), Counter(batch)
    differing = sorted({row for row in one | other if one[row] != other[row]}, key=repr)
    assert found.is_equal == (not differing)
    assert found.rows == (len(streaming), len(batch))
    keys = sorted({repr(row[0]) if keyed else repr(row) for row in differing})
    assert found.differing_keys == len(keys)
    if found.first is not None:
        assert found.first.key_text == keys[0]
        first = [row for row in differing if not keyed or repr(row[0]) == keys[0]]
        more = [repr(row) for row in (one - other).elements() if row in first]
        assert Counter(found.first.only_streaming) <= Counter(more)
        assert len(found.first.only_streaming) == min(SHOWN_ROWS, len(more))
        assert found.first.missing == (
            sum((one - other)[row] for row in first),
            sum((other - one)[row] for row in first),
        )


def test_the_first_key_shows_both_results(tmp_path: Path) -> None:
    found = compared(tmp_path, [("b", 1), ("a", 1)], [("a", 2), ("b", 2)], BY_FIRST)
    assert found.first is not None
    assert (found.first.key_text, found.first.is_row, found.differing_keys) == ("'a'", False, 2)
    assert (found.first.only_streaming, found.first.only_batch) == (["('a', 1)"], ["('a', 2)"])


def test_of_a_key_with_many_rows_a_few_are_shown(tmp_path: Path) -> None:
    found = compared(tmp_path, [("a", number) for number in range(500)], [("a", 7)], BY_FIRST)
    assert found.first is not None
    assert len(found.first.only_streaming) == SHOWN_ROWS
    assert (found.first.missing, found.first.rows) == ((499, 0), (500, 1))


def test_only_rounding_is_told_from_other_differences(tmp_path: Path) -> None:
    total = 0.1 + 0.2
    rounding = compared(tmp_path, [("a", total)], [("a", 0.3)], BY_FIRST)
    assert rounding.first is not None and rounding.first.is_rounding
    for name, other in (("value", ("a", 0.31)), ("text", ("a", 0.3, "x")), ("type", ("a", 0))):
        (tmp_path / name).mkdir()
        found = compared(tmp_path / name, [("a", total)], [other], BY_FIRST)
        assert found.first is not None and not found.first.is_rounding


def test_rounding_of_one_key_hides_no_other_difference(tmp_path: Path) -> None:
    total = 0.1 + 0.2
    streaming = [("a", total), ("b", 1), ("b", 2), ("c", total)]
    found = compared(tmp_path, streaming, [("a", 0.3), ("c", 0.3)], BY_FIRST)
    assert found.differing_keys == 3
    assert found.first is not None and found.first.key_text == "'b'"
    assert not found.first.is_rounding


class Same:
    """Values that differ in what their text does not show."""

    def __init__(self, value: float) -> None:
        self.value = value

    def __repr__(self) -> str:
        return "Same(0.5)"


def test_equal_texts_are_no_rounding(tmp_path: Path) -> None:
    found = compared(tmp_path, [("a", Same(1.0))], [("a", Same(2.0))], BY_FIRST)
    assert found.first is not None and not found.first.is_rounding


def test_a_selector_that_cannot_take_a_result_leaves_the_row_as_its_key(tmp_path: Path) -> None:
    by_name = KeyOfRows(selector=cloudpickle.dumps(lambda row: row["name"]))
    streaming = [{"total": 1}, {"name": "b", "total": 2}]
    assert compared(tmp_path / "equal", streaming, streaming[::-1], by_name).is_equal
    found = compared(tmp_path / "other", streaming, [{"total": 1}, {"name": "b", "total": 3}], by_name)
    assert found.first is not None
    assert (found.first.key_text, found.differing_keys) == ("'b'", 1)


def test_many_runs_are_merged_with_few_open_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured_rows, "RUN_ENTRIES", 1)
    rows = [(str(number % 7), number) for number in range(300)]
    folder = written(tmp_path / "runs", rows, BY_FIRST)
    assert len(list(folder.iterdir())) == 300
    used = len(os.listdir("/proc/self/fd"))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 100, limits[1]))
    try:
        found = list(entries_in(folder))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert found == sorted(found)
    assert sorted(entry.row_text for entry in found) == sorted(map(repr, rows))


def test_equal_rows_may_have_other_texts(tmp_path: Path) -> None:
    one, other = frozenset([0, 8]), frozenset([8, 0])
    assert repr(one) != repr(other)
    for name, key in (("keys", BY_FIRST), ("rows", KeyOfRows())):
        (tmp_path / name).mkdir()
        assert compared(tmp_path / name, [(one, 1)], [(other, 1)], key).is_equal


def test_columns_are_rows_of_their_values_and_lead_with_the_key(tmp_path: Path) -> None:
    batch = pa.record_batch({"k": ["a", "b"], "n": [1, None]})
    context: Any = Context(0)
    writer = CapturedRows("columns", str(tmp_path), KeyOfRows(columns=1), columns=True).create_writer(context)
    writer.write_batch(batch)
    writer.flush(True)
    CapturedRows("columns", str(tmp_path), KeyOfRows()).create_committer().commit(writer.prepare_commit())
    assert [(entry.key_text, entry.row_text) for entry in entries_in(tmp_path)] == [
        ("'a'", "('a', 1)"), ("'b'", "('b', None)"),
    ]  # fmt: skip


def test_what_was_not_committed_does_not_count(tmp_path: Path) -> None:
    sink = CapturedRows("the sink", str(tmp_path), KeyOfRows())
    context: Any = Context(0)
    writer = sink.create_writer(context)
    writer.write([1], None)
    writer.flush(True)
    assert list(entries_in(tmp_path)) == []
    sink.create_committer().abort(writer.prepare_commit())
    assert list(tmp_path.iterdir()) == []
