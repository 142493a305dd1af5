"""The archive of a service's classes: who lists classes, who writes it, and what happens if Java cannot."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.services.class_archive import daemon_flags, use_flags, write

#: Writes its arguments beside itself, and an archive where it is told to.
WRITER = """#!/bin/sh
echo "$@" >> "$0.calls"
for argument; do case "$argument" in -XX:SharedArchiveFile=*) echo classes > "${argument#*=}" ;; esac; done
"""


@pytest.fixture
def jars(tmp_path: Path) -> Path:
    (tmp_path / "jars").mkdir()
    return tmp_path / "jars"


def java_of(folder: Path, script: str) -> str:
    """A home of Java whose program is the script."""
    (folder / "java" / "bin").mkdir(parents=True)
    program = folder / "java" / "bin" / "java"
    program.write_text(script)
    program.chmod(0o755)
    return str(folder / "java")


def listed(java: str, jars: Path, text: str) -> Path:
    """The list that a daemon has left."""
    (flag,) = daemon_flags(java, jars)
    name, _, file = flag.partition("=")
    assert name == "-XX:DumpLoadedClassList"
    Path(file).write_text(text)
    return Path(file)


def test_the_first_daemons_list_their_classes_and_later_ones_use_the_archive(
    tmp_path: Path, jars: Path
) -> None:
    java = java_of(tmp_path, WRITER)
    assert use_flags(java, jars) == []
    # The second daemon was killed in the middle of a line.
    lists = [listed(java, jars, "# a comment\nb/B\na/A\n"), listed(java, jars, "c/C\na/A\nd/")]
    write(java, jars)
    (archive, *_) = use_flags(java, jars)
    assert daemon_flags(java, jars) == use_flags(java, jars)
    folder = lists[0].parent
    assert archive == f"-XX:SharedArchiveFile={folder / 'classes.jsa'}"
    assert (folder / "classes.all").read_text() == "a/A\nb/B\nc/C\n"
    assert not any(folder.glob("*.list"))
    write(java, jars)
    (call,) = Path(f"{java}/bin/java.calls").read_text().splitlines()
    assert call.startswith("-Xshare:dump ") and call.endswith(f" -cp {jars}/*")


def test_nothing_is_written_without_a_list(tmp_path: Path, jars: Path) -> None:
    java = java_of(tmp_path, WRITER)
    write(java, jars)
    assert use_flags(java, jars) == [] and not Path(f"{java}/bin/java.calls").exists()


def test_a_java_that_cannot_write_is_asked_once(tmp_path: Path, jars: Path) -> None:
    java = java_of(tmp_path, "#!/bin/sh\necho no such thing >&2\nexit 1\n")
    folder = listed(java, jars, "a/A\n").parent
    write(java, jars)
    assert use_flags(java, jars) == [] and daemon_flags(java, jars) == []
    assert (folder / "refused.log").read_text() == "no such thing\n"


def test_another_java_has_another_archive(tmp_path: Path, jars: Path) -> None:
    java = java_of(tmp_path, WRITER)
    listed(java, jars, "a/A\n")
    write(java, jars)
    other = java_of(tmp_path / "other", WRITER)
    (Path(other) / "release").write_text('JAVA_VERSION="21"\n')
    assert use_flags(java, jars) and use_flags(other, jars) == []
