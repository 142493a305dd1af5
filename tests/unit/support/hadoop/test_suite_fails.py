"""A test that fails fails the suite, and so does a missing program: nothing is run again or left out unasked."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.services.errors import MissingProgramError
from tests.yarn.clusters_of_runs import MAY_SKIP, SHARED, cluster_of_run

ROOT = Path(__file__).resolve().parents[4]
#: Stands for python: notes each run of tests; the first one fails, as an unsteady test makes it.
FAILS_ONCE = """#!/bin/sh
case "$*" in *--collect-only*) exit 0 ;; esac
echo "$*" >> runs
[ "$(wc -l < runs)" -gt 1 ]
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """scripts/test of this checkout with another python."""
    nothing = "#!/bin/sh\n"
    programs = {
        ".venv/bin/python": FAILS_ONCE, "scripts/check": nothing, "scripts/environment": nothing,
    }  # fmt: skip
    for name, text in programs.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(0o755)
    shutil.copy(ROOT / "scripts" / "test", tmp_path / "scripts" / "test")
    return tmp_path


@pytest.mark.parametrize("arguments", [(), ("--quick",), ("tests/unit",)])
def test_what_fails_once_fails_the_suite(checkout: Path, arguments: tuple[str, ...]) -> None:
    done = subprocess.run([checkout / "scripts" / "test", *arguments], capture_output=True, check=False)
    assert done.returncode != 0
    assert len((checkout / "runs").read_text().splitlines()) == 1, "there is no second run"


def test_a_missing_program_fails_by_name_unless_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    def up(cluster: HadoopCluster) -> None:
        raise MissingProgramError("mvn is missing: install it")

    monkeypatch.setattr(HadoopCluster, "up", up)
    monkeypatch.setattr("tests.yarn.clusters_of_runs.take_down_abandoned", lambda: None)
    monkeypatch.delenv(SHARED, raising=False)
    monkeypatch.delenv(MAY_SKIP, raising=False)
    with (
        pytest.raises(MissingProgramError, match=r"mvn is missing.*YARROW_TEST_WITHOUT_HADOOP=1"),
        cluster_of_run(SHARED),
    ):
        pass
    monkeypatch.setenv(MAY_SKIP, "1")
    with (
        pytest.raises(pytest.skip.Exception, match="mvn is missing"),
        cluster_of_run("YARROW_HADOOP_DIRECTORY"),
    ):
        pass
