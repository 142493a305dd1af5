"""Archives and requirements of a job in a worker: unpacked once, found under their targets, refused with a reason."""

from __future__ import annotations

import io
import os
import tarfile
import zipfile
from pathlib import Path

import pytest

from yarrow.container.worker.shipped_content import install_content
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.job_graph import ShippedFile
from yarrow.runtime.yarn import layout


@pytest.fixture
def fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a job's files, and another that the worker works in."""
    folder = tmp_path / "files"
    folder.mkdir()
    (tmp_path / "container").mkdir()
    monkeypatch.chdir(tmp_path / "container")
    return folder


def archive(name: str, target: str | None = None) -> ShippedFile:
    return ShippedFile(name=name, kind="archive", blob_key=name, target=target)


def zipped(path: Path) -> str:
    with zipfile.ZipFile(path, "w") as made:
        program = zipfile.ZipInfo("bin/run")
        program.external_attr = 0o100755 << 16
        made.writestr(program, "#!/bin/sh\necho ran\n")
        link = zipfile.ZipInfo("bin/again")
        link.external_attr = 0o120777 << 16
        made.writestr(link, "run")
        made.writestr("data.txt", "of the zip")
    return str(path)


def tarred(path: Path) -> str:
    with tarfile.open(path, "w:gz") as made:
        entry = tarfile.TarInfo("data.txt")
        entry.size = len(b"of the tar")
        made.addfile(entry, io.BytesIO(b"of the tar"))
    return str(path)


def test_archives_lie_under_their_targets_in_the_working_folder(fetched: Path) -> None:
    files = (archive("model.zip", "model"), archive("tables.tar.gz"))
    paths = {"model.zip": zipped(fetched / "0"), "tables.tar.gz": tarred(fetched / "1")}
    assert install_content(files, paths) == []
    assert Path("model/data.txt").read_text() == "of the zip"
    assert Path("tables.tar.gz/data.txt").read_text() == "of the tar"
    assert os.access("model/bin/run", os.X_OK)
    assert os.readlink("model/bin/again") == "run"


def test_another_worker_of_the_job_unpacks_nothing(fetched: Path, tmp_path: Path) -> None:
    files, paths = (archive("model.zip", "model"),), {"model.zip": zipped(fetched / "0")}
    install_content(files, paths)
    Path("model/data.txt").write_text("changed")
    os.chdir(tmp_path / "container")
    install_content(files, paths)
    assert Path("model/data.txt").read_text() == "changed"


def test_files_of_a_yarn_container_stay_where_they_are(
    fetched: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(layout.RESOURCE_ID, "taskexecutor-1")
    Path("shipped.txt").write_text("by YARN")
    install_content((archive("model.zip", "model"),), {"model.zip": zipped(fetched / "0")})
    assert Path("shipped.txt").read_text() == "by YARN"


@pytest.mark.parametrize("target", ["../outside", "/outside", "."])
def test_targets_outside_of_the_working_folder_are_refused(fetched: Path, target: str) -> None:
    with pytest.raises(InvalidProgramError, match="must be a folder below"):
        install_content((archive("model.zip", target),), {"model.zip": zipped(fetched / "0")})


def test_what_is_no_archive_is_refused(fetched: Path) -> None:
    (fetched / "0").write_text("text")
    with pytest.raises(InvalidProgramError, match=r"archive 'model\.zip' cannot be unpacked"):
        install_content((archive("model.zip"),), {"model.zip": str(fetched / "0")})


def test_without_archives_the_working_folder_stays(fetched: Path) -> None:
    before = os.getcwd()
    assert (
        install_content((ShippedFile(name="m", kind="python_file", blob_key="m", target=None),), {"m": "x"})
        == []
    )
    assert os.getcwd() == before


def wheel(path: Path) -> None:
    """The smallest wheel that pip takes."""
    info = "wanted-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("wanted.py", "WHOSE = 'required'\n")
        made.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: wanted\nVersion: 1.0\n")
        made.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        made.writestr(f"{info}/RECORD", f"wanted.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")


@pytest.mark.slow
def test_requirements_are_installed_from_the_folder_beside_them(fetched: Path) -> None:
    wheel(fetched / "wanted-1.0-py3-none-any.whl")
    with zipfile.ZipFile(fetched / "1", "w") as cache:
        cache.write(fetched / "wanted-1.0-py3-none-any.whl", "wanted-1.0-py3-none-any.whl")
    (fetched / "0").write_text("wanted\n")
    files = (
        ShippedFile(name="needs.txt", kind="requirements", blob_key="r", target=None),
        ShippedFile(name="cache", kind="requirements_cache", blob_key="c", target=None),
    )
    (entry,) = install_content(files, {"r": str(fetched / "0"), "c": str(fetched / "1")})
    assert Path(entry, "wanted.py").exists()
    (fetched / "0").write_text("missing-thing\n")
    Path(entry).parent.joinpath("requirements.installed").unlink()
    with pytest.raises(InvalidProgramError, match=r"(?s)needs\.txt.*missing-thing.*-pyreq FILE#FOLDER"):
        install_content(files, {"r": str(fetched / "0"), "c": str(fetched / "1")})
