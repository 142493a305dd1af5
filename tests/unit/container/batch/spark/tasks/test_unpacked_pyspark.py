from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from yarrow.container.batch.spark.tasks.unpacked_pyspark import prefer_unpacked, without_archives

ARCHIVES = ("python/lib/pyspark.zip", "python/lib/py4j-0.10.9.9-src.zip", "jars/spark-core.jar")


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A folder of the search path in which PySpark and py4j are installed, with the archives that Spark names."""
    library = tmp_path / "site-packages"
    (library / "pyspark" / "python" / "lib").mkdir(parents=True)
    (library / "pyspark" / "jars").mkdir()
    (library / "py4j").mkdir()
    for file in ("pyspark/__init__.py", "py4j/__init__.py", *(f"pyspark/{name}" for name in ARCHIVES)):
        (library / file).touch()
    return library


def test_archives_inside_the_installed_pyspark_are_left_out(installed: Path, tmp_path: Path) -> None:
    archives = [str(installed / "pyspark" / name) for name in ARCHIVES]
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


def test_an_archive_of_py4j_stays_where_none_is_installed(installed: Path) -> None:
    (installed / "py4j" / "__init__.py").unlink()
    (installed / "py4j").rmdir()
    pyspark, py4j, jar = (str(installed / "pyspark" / name) for name in ARCHIVES)
    assert without_archives([pyspark, py4j, jar, str(installed)]) == [py4j, str(installed)]


def test_a_single_module_of_that_name_is_no_installed_pyspark(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").touch()
    path = [str(installed / "pyspark" / ARCHIVES[0]), str(tmp_path), str(installed)]
    assert without_archives(path) == path


def test_an_entry_that_may_not_be_read_is_passed_over(
    installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors get the search path of the driver, and may run as another user."""
    closed, real = tmp_path / "home", os.stat

    def stat(path: Any, **options: Any) -> os.stat_result:
        if closed in Path(path).parents:
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path, **options)

    monkeypatch.setattr(os, "stat", stat)
    unread = [str(closed / "program"), str(closed / "job.zip")]
    archive = str(installed / "pyspark" / ARCHIVES[0])
    assert without_archives([*unread, archive, str(installed)]) == [*unread, str(installed)]


def test_the_process_forgets_what_it_knows_of_them(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = str(installed / "pyspark" / "python" / "lib" / "pyspark.zip")
    monkeypatch.setattr(sys, "path", [archive, str(installed)])
    monkeypatch.setitem(sys.path_importer_cache, archive, None)
    prefer_unpacked()
    assert sys.path == [str(installed)]
    assert archive not in sys.path_importer_cache
