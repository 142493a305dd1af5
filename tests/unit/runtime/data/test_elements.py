"""Rows are told from record batches without loading pyarrow."""

from __future__ import annotations

import sys
from types import ModuleType

import pyarrow as pa
import pytest

from yarrow.runtime.data.elements import is_record_batch


def test_a_record_batch_is_one_and_rows_are_none() -> None:
    batch = pa.record_batch({"a": [1]})
    assert is_record_batch(batch)
    assert not any(is_record_batch(rows) for rows in ([batch], (batch,), range(2), None))


def test_while_another_thread_imports_pyarrow_rows_are_no_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", ModuleType("pyarrow"))
    assert not is_record_batch((1, 2))
