"""New delegation tokens for Java of Spark: a session that does not take them is no silent success."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from yarrow.container.batch.spark.requirements import JavaInstallation
from yarrow.container.batch.spark.session import SparkHost, SparkTokensError
from yarrow.container.batch.spark.settings import SparkFolders
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hadoop_tokens import TOKEN_FILE_VARIABLE


def test_a_session_that_is_being_closed_refuses_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(tmp_path / "container_tokens"))
    config = Settings({"spark.master": "local-cluster[1,1,1024]"})
    host = SparkHost(cast(JavaInstallation, None), config, 1, SparkFolders(tmp_path), tmp_path / "spark.log")
    assert host.has_executors
    host.hand_on_tokens()  # Spark has not started: there is nobody to hand them to.
    host._gateway = SimpleNamespace(jvm=None)
    # PySpark leaves this of a context that was stopped.
    host._session = cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(_jsc=None)))
    with pytest.raises(SparkTokensError, match="keeps its former delegation tokens"):
        host.hand_on_tokens()


def test_a_java_that_does_not_answer_refuses_tokens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent:
        def __getattr__(self, name: str) -> Any:
            raise ConnectionRefusedError("Java has ended")

    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(tmp_path / "container_tokens"))
    config = Settings({"spark.master": "local-cluster[1,1,1024]"})
    host = SparkHost(cast(JavaInstallation, None), config, 1, SparkFolders(tmp_path), tmp_path / "spark.log")
    host._gateway = SimpleNamespace(jvm=Silent())
    host._session = cast(Any, SimpleNamespace(sparkContext=SimpleNamespace(_jsc=Silent())))
    with pytest.raises(SparkTokensError, match="Java has ended"):
        host.hand_on_tokens()
