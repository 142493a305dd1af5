"""What is said without any cluster: one sentence, exit status 1, and nothing written."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

UNKNOWN = "application_1700000000000_0001"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["session", "-d"], "HADOOP_CONF_DIR"),
        (["session", "-d", "-jm", "100"], "at least `178 mb`, on YARN to `434 mb`"),
        (["session", "-q"], "HADOOP_CONF_DIR"),
        (["run", "-m", "yarn-cluster", "job.py"], "HADOOP_CONF_DIR"),
        (["run-application", "-t", "yarn-application", "job.py"], "HADOOP_CONF_DIR"),
        (
            ["run-application", "-sae", "job.py"],
            "-sae (execution.shutdown-on-attached-exit) has no effect with",
        ),
        (["session", "-id", UNKNOWN, "-n", "3"], "-n: without effect, the session runs already"),
        (["run-application", "-t", "yarn-session", "job.py"], "run-application takes -t yarn-application"),
        (["run", "-yid", UNKNOWN, "job.py"], f"no secrets of {UNKNOWN}"),
        (["list", "-yid", "nobody"], "No application is called 'nobody'"),
        (["cancel", "-m", "yarn-cluster", "0" * 32], "name the application with -yid"),
        (["run", "-ytm", "1g", "job.py"], "-m yarn-cluster"),
        (
            ["run", "-t", "yarn-per-job", "-m", "a:1", "job.py"],
            "-m a:1 names a REST server, and yarn-per-job",
        ),
        (["run-application", "-m", "a:1", "job.py"], "-m a:1 names a REST server, and yarn-application"),
        (["run", "-pyfs", "gone.zip", "job.py"], "python.files (-pyfs) names 'gone.zip', but there is no"),
        (
            ["run", "-m", "yarn-cluster", "-yt", "gone", "job.py"],
            "gone is to be shipped (yarn.ship-files), and there",
        ),
        (["run", "-pyreq", "gone.txt", "job.py"], "python.requirements (-pyreq) names 'gone.txt'"),
        (["cancel", "-m", "a:1", "a b"], "'a b' is no job's id, which has 32 hexadecimal digits"),
        (["savepoint", "-m", "a:1", "hdfs:///p", "0" * 32], "'hdfs:///p' is no job's id"),
        (
            ["run", "-t", "yarn-per-job", "-D", f"yarn.application.id={UNKNOWN}", "job.py"],
            "yarn.application.id",
        ),
        (["token"], "No application is named"),
        (["session", "-m", "somewhere:8081"], "a session is started on YARN"),
        (["sesion"], "No such command 'sesion'."),
        (["sesion"], "`yarrow -h` shows its flags and arguments."),
        (["session", "-x"], "No such option: -x. `yarrow session -h` shows its flags and arguments."),
        (["session", "-n", "two"], "Invalid value for '-n' / '--container'"),
        (["stop"], "`yarrow stop -h` shows its flags and arguments."),
        (
            ["run", "-sae", "-D", "client.heartbeat.timeout=1 s", "-m", "a:1", "job.py"],
            "must be shorter than",
        ),
    ],
)
def test_one_sentence_and_nothing_else(tmp_path: Path, arguments: list[str], said: str) -> None:
    # Neither a session nor a standalone cluster of this user is found.
    (tmp_path / "config.yaml").write_text(
        f"yarn.properties-file.location: {tmp_path / 'files'}\nsecurity.cluster.directory: {tmp_path / 'files'}\n"
    )
    (tmp_path / "job.py").write_text(
        "from yarrow.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).print()\n"
        "env.execute()\n"
    )
    hadoop = {"HADOOP_CONF_DIR", "YARN_CONF_DIR", "FLINK_CONF_DIR"}
    environment = {key: value for key, value in os.environ.items() if key not in hadoop}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("yarrow")), *arguments],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={**environment, "YARROW_CONF_DIR": str(tmp_path)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert said in done.stderr
    assert " The program finished with the following exception:\n" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert not (tmp_path / "files").exists()
