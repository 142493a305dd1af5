"""Files of register_cached_file, opened by functions of a stream and of a bounded job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from yarrow.datastream import MapFunction, RuntimeContext, RuntimeExecutionMode
from yarrow.embedded.mini_cluster import mini_cluster

pytestmark = pytest.mark.cluster


class Rated(MapFunction[int, Any]):
    """Multiplies by a number out of a cached file, and tells the content of a cached folder."""

    def open(self, runtime_context: RuntimeContext) -> None:
        cache = runtime_context.get_distributed_cache()
        self.rate = int(Path(cache.get_file("rate")).read_text())
        self.names = sorted(path.name for path in Path(cache.get_file("folder")).iterdir())

    def map(self, value: int) -> Any:
        return value * self.rate, self.names


@pytest.mark.parametrize("mode", [RuntimeExecutionMode.STREAMING, RuntimeExecutionMode.AUTOMATIC])
def test_functions_open_cached_files_by_name(mode: RuntimeExecutionMode, tmp_path: Path) -> None:
    rate, folder = tmp_path / "rate.txt", tmp_path / "folder"
    rate.write_text("7")
    folder.mkdir()
    (folder / "one").touch()
    (folder / "two").touch()
    with mini_cluster(slots=2) as cluster:
        env = cluster.get_execution_environment().set_parallelism(1).set_runtime_mode(mode)
        env.register_cached_file(str(rate), "rate")
        env.register_cached_file(str(folder), "folder")
        with env.from_collection([1, 2]).map(Rated()).execute_and_collect() as rows:
            assert list(rows) == [(7, ["one", "two"]), (14, ["one", "two"])]
