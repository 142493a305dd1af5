"""What a user ships, where it lies in containers, and what is refused before anything is submitted."""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pytest

from yarrow.client.yarn.staging import StagedFiles, check_local_files, check_places, stage
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.config.options import python, web
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.yarn.application import ProgramDescription
from yarrow.runtime.yarn.gateways import Resource, YarnError


@pytest.fixture
def made(tmp_path: Path) -> Path:
    folder = tmp_path / "made"
    folder.mkdir()
    return folder


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The client's working directory."""
    folder = tmp_path / "client"
    (folder / "package").mkdir(parents=True)
    (folder / "package" / "__init__.py").write_text("")
    (folder / "data" / "deep").mkdir(parents=True)
    (folder / "data" / "deep" / "table.csv").write_text("1")
    (folder / "data" / "__pycache__").mkdir()
    (folder / "data" / "__pycache__" / "x.pyc").write_text("")
    for name in ("job.py", "json.py", "runtime.py", "words.txt", "model.zip", "needs.txt"):
        (folder / name).write_text(name)
    monkeypatch.chdir(folder)
    # No pages of who runs the test.
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def targets(staged: StagedFiles) -> list[str]:
    return [resource.target for resource in staged.both]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("execution.checkpointing.dir", "/tmp/checkpoints"),
        ("state.checkpoints.dir", "file:///tmp/checkpoints"),
        ("execution.checkpointing.savepoint-dir", "savepoints"),
        ("high-availability.storageDir", "file:///tmp/ha"),
        ("execution.state-recovery.path", "/tmp/savepoints/savepoint-1"),
        ("jobmanager.archive.fs.dir", "/tmp/archive"),
        ("yarn.provided.lib.dirs", "/opt/lib"),
        ("yarn.provided.lib.dirs", "hdfs:///lib;/opt/lib"),
        ("yarn.provided.usrlib.dir", "file:///opt/usrlib"),
        ("python.executable", "/usr/bin/python3.11"),
        ("python.executable", "venv.zip/bin/python"),
    ],
)
def test_places_that_nodes_cannot_see_are_refused_with_the_remedy(key: str, value: str) -> None:
    with pytest.raises(YarnError) as refused:
        check_places(Settings({key: value}))
    text = str(refused.value)
    assert key in text
    assert value.split(";")[-1] in text
    assert "hdfs://host:port/" in text or "yarn.ship-archives" in text


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"execution.checkpointing.dir": "hdfs:///checkpoints", "yarn.provided.lib.dirs": "hdfs://a:1/lib"},
        {"execution.state-recovery.path": "hdfs://a:1/savepoints/savepoint-1"},
        {"execution.state-recovery.path": "of Tuesday", "execution.checkpointing.dir": "my_storage:Storage"},
        {"python.executable": "python"},
        {"python.executable": "venv.zip/bin/python", "yarn.ship-archives": "a/venv.zip"},
        {"python.executable": "venv.zip/bin/python", "python.archives": "b.zip,a/venv.zip"},
        {"python.executable": "./env/venv/bin/python", "python.archives": "a/venv.zip#env"},
        {"python.executable": "tools/python", "yarn.ship-files": "/opt/tools/"},
        {"python.executable": "/usr/bin/python3.11", "yarn.environment": "none"},
    ],
)
def test_places_on_hdfs_and_in_containers_are_taken(settings: dict[str, object]) -> None:
    check_places(Settings(settings))


def test_shipped_files_keep_their_names_and_folders_stay_folders(files: Path, made: Path) -> None:
    staged = stage(Settings({"yarn.ship-files": "words.txt;data", "yarn.ship-archives": "model.zip"}), made)
    words, data, model = staged.both
    assert words == Resource("words.txt", str(files / "words.txt"))
    assert (data.target, data.is_archive) == ("data", True)
    with tarfile.open(data.source) as archive:
        assert archive.getnames() == ["deep/table.csv"]
    assert model == Resource("model.zip", str(files / "model.zip"), is_archive=True)
    assert staged.master == ()


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "yarn.ship-files",
            "missing.txt",
            "missing.txt is to be shipped .yarn.ship-files., and there is no such",
        ),
        ("yarn.ship-files", "words.txt;../client/../client/words.txt;data/../words.txt", None),
        ("yarn.ship-files", "s3://bucket/file", "only local files and hdfs:// URLs can be"),
        ("yarn.ship-archives", "words.txt", "which YARN does not unpack"),
    ],
)
@pytest.mark.usefixtures("files")
def test_what_cannot_be_shipped(made: Path, key: str, value: str, message: str | None) -> None:
    settings = Settings({key: value})
    if message is None:
        assert targets(stage(settings, made)) == ["words.txt"]
        return
    with pytest.raises((YarnError, InvalidProgramError), match=message):
        stage(settings, made)


def test_names_of_the_application_itself_are_refused(files: Path, made: Path) -> None:
    (files / "environment").mkdir()
    with pytest.raises(YarnError, match="a name that Yarrow needs"):
        stage(Settings({"yarn.ship-files": "environment"}), made)


def test_two_files_of_one_name_are_refused(files: Path, made: Path) -> None:
    (files / "data" / "words.txt").write_text("others")
    with pytest.raises(YarnError, match=r"would both be words\.txt"):
        stage(Settings({"yarn.ship-files": "words.txt;data/words.txt"}), made)


def test_the_program_gets_the_paths_that_it_has_in_its_container(files: Path, made: Path) -> None:
    program = ProgramDescription(path="job.py", arguments=("--x",), python_files=("json.py", "package"))
    config = Settings(
        {
            "python.files": "json.py,package",
            "python.archives": "model.zip#model,data/../model.zip",
            "python.requirements": "needs.txt#data",
        }
    )
    staged = stage(config, made, program)
    assert staged.program == ProgramDescription(
        path="usrlib/job.py",
        arguments=("--x",),
        python_files=("usrlib/python-files/0/json.py", "usrlib/python-files/1/package.zip"),
    )
    assert staged.configuration.get(python.FILES) == staged.program.python_files
    archives = staged.configuration.get(python.ARCHIVES)
    assert archives == ("usrlib/archives/0/model.zip#model", "usrlib/archives/1/model.zip")
    assert (
        staged.configuration.get(python.REQUIREMENTS)
        == "usrlib/requirements/needs.txt#usrlib/requirements/cache"
    )
    assert staged.both == ()
    places = {resource.target: resource for resource in staged.master}
    assert len(places) == len(staged.master) == 7
    assert places["usrlib/job.py"].source == str(files / "job.py")
    assert places["usrlib/requirements/cache"].is_archive
    with zipfile.ZipFile(places["usrlib/python-files/1/package.zip"].source) as archive:
        assert archive.namelist() == ["package/__init__.py"]


def test_modules_of_the_user_lie_in_folders_of_their_own(files: Path, made: Path) -> None:
    """A module named like one of the engine's or of the standard library is beside nothing that it could hide."""
    (files / "other").mkdir()
    (files / "other" / "json.py").write_text("")
    program = ProgramDescription(path="job.py", python_files=("json.py", "other/json.py", "runtime.py"))
    staged = stage(Settings(), made, program)
    folders = [Path(resource.target).parent for resource in staged.master]
    assert len(set(folders)) == 4
    assert not any(folder == Path(".") for folder in folders)


def test_a_folder_that_is_the_program_travels_as_a_zip(files: Path, made: Path) -> None:
    (files / "app").mkdir()
    (files / "app" / "__main__.py").write_text("print()")
    staged = stage(Settings(), made, ProgramDescription(path="app"))
    assert staged.program is not None
    assert staged.program.path == "usrlib/app.zip"
    with zipfile.ZipFile(staged.master[0].source) as archive:
        assert archive.namelist() == ["__main__.py"]


def test_a_program_that_is_not_there_is_refused(made: Path) -> None:
    with pytest.raises(InvalidProgramError, match=r"nowhere\.py is to be shipped"):
        stage(Settings(), made, ProgramDescription(path="/tmp/nowhere.py"))


@pytest.mark.parametrize("key", ["yarn.ship-files", "yarn.ship-archives"])
def test_a_local_file_that_is_not_there_is_found_before_anything_is_made(files: Path, key: str) -> None:
    check_local_files(Settings({key: "model.zip;hdfs:///looked/for/later.zip"}))
    with pytest.raises(
        InvalidProgramError, match=rf"gone\.zip is to be shipped \({key}\), and there is no such"
    ):
        check_local_files(Settings({key: "model.zip;gone.zip"}))


def test_the_pages_of_the_client_go_to_the_master_alone(files: Path, made: Path) -> None:
    nothing = stage(Settings(), made)
    assert (nothing.master, nothing.configuration.get(web.PAGES)) == ((), "none")
    with zipfile.ZipFile(files / "pages.jar", "w") as archive:
        archive.writestr("web/index.html", "")
    staged = stage(Settings({"web.pages": "pages.jar"}), made)
    assert staged.both == ()
    assert staged.master == (Resource("yarrow-web-pages.jar", str(files / "pages.jar")),)
    assert staged.configuration.get(web.PAGES) == "yarrow-web-pages.jar"
    program = ProgramDescription(path="job.py")
    with_program = stage(Settings({"web.pages": "pages.jar"}), made, program)
    assert "yarrow-web-pages.jar" in [resource.target for resource in with_program.master]
    assert with_program.configuration.get(web.PAGES) == "yarrow-web-pages.jar"
    with pytest.raises(ConfigError, match=r"web\.pages is missing\.jar"):
        stage(Settings({"web.pages": "missing.jar"}), made)
