"""Metrics of a worker's process, also while another thread imports a library that has some."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from yarrow.container.worker.worker_metrics import WorkerMetrics


@pytest.mark.parametrize("name", ["pyarrow", "yarrow.container.state.rocksdb.memory"])
def test_a_library_that_is_just_being_imported_has_no_metrics_yet(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, name, ModuleType(name))
    values = WorkerMetrics(None, lambda: ()).values()
    assert values["Status.JVM.Threads.Count"] >= 1
    assert ("arrowPoolBytes" in values) is (name != "pyarrow" and "pyarrow" in sys.modules)
