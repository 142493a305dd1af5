from __future__ import annotations

import sys
from pathlib import Path

import pytest

from yarrow.container.batch.spark.tasks.unpacked_pyspark import prefer_unpacked, without_archives


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of the search path in which PySpark is installed, with the archives that Spark names."""
    library = tmp_path / "site-packages"
    (library / "pyspark" / "python" / "lib").mkdir(parents=True)
    (library / "pyspark" / "jars").mkdir()
    for file in ("__init__.py", "python/lib/pyspark.zip", "python/lib/py4j-src.zip", "jars/spark-core.jar"):
        (library / "pyspark" / file).touch()
    return library


def test_archives_inside_the_installed_pyspark_are_left_out(installed: Path, tmp_path: Path) -> None:
    archives = [
        str(installed / "pyspark" / name) for name in ("python/lib/pyspark.zip", "jars/spark-core.jar")
    ]
    (tmp_path / "job.zip").touch()
    others = ["", str(tmp_path / "job.zip"), str(tmp_path / "nowhere.zip"), str(installed)]
    assert without_archives([*archives, *others]) == others
    (tmp_path / "home").symlink_to(installed / "pyspark")
    assert without_archives([str(tmp_path / "home" / "python/lib/pyspark.zip"), *others]) == others


def test_archives_of_another_spark_stay(installed: Path, tmp_path: Path) -> None:
    other = tmp_path / "spark" / "python" / "lib" / "pyspark.zip"
    other.parent.mkdir(parents=True)
    other.touch()
    assert without_archives([str(other), str(installed)]) == [str(other), str(installed)]
    # Without one that is installed, the archives are all there is.
    own = str(installed / "pyspark" / "python" / "lib" / "pyspark.zip")
    assert without_archives([own, str(tmp_path)]) == [own, str(tmp_path)]


def test_the_process_forgets_what_it_knows_of_them(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = str(installed / "pyspark" / "python" / "lib" / "pyspark.zip")
    monkeypatch.setattr(sys, "path", [archive, str(installed)])
    monkeypatch.setitem(sys.path_importer_cache, archive, None)
    prefer_unpacked()
    assert sys.path == [str(installed)]
    assert archive not in sys.path_importer_cache
