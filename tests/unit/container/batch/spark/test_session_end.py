"""The end of a session: Java has its time to write its classes, and nobody takes it for one that stands still."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from yarrow.container.batch.spark.java.java_process import JavaProcess
from yarrow.container.batch.spark.requirements import JavaInstallation
from yarrow.container.batch.spark.session import SparkHost
from yarrow.container.batch.spark.settings import SparkFolders
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.spark_driver_process import SignsOfWork


class Java:
    """A Java that notes what happens at its end, as its archive and the heartbeat do."""

    def __init__(self, *, is_awaited: bool = True) -> None:
        self.is_awaited = is_awaited
        self.events: list[str] = []

    def has_ended(self) -> bool:
        return False

    def end(self, grace: float = 3.0, await_end: Callable[[], bool] | None = None) -> bool:
        self.events.append(f"ends within {grace:g} s" if await_end is None else "ends")
        return await_end() if await_end is not None else True

    def begin(self) -> None:
        self.events.append("begins to write")

    def await_written(self, java: object, give_sign: Callable[[], object]) -> bool:
        assert java is self
        self.events.append("writes")
        give_sign()
        return True

    def keep(self, give_sign: Callable[[], object]) -> None:
        self.events.append("is kept")
        self.give_sign = give_sign


def closed(folder: Path, java: Java, *, keep_classes: bool) -> list[str]:
    host = SparkHost(
        cast("JavaInstallation", None), Settings(), 1, SparkFolders(folder), folder / "spark.log"
    )
    host._java, host._archive = cast("JavaProcess", java), cast("Any", java)
    host.close(keep_classes=keep_classes, before_end=lambda: java.events.append("is asked no more"))
    return java.events


def test_java_writes_its_classes_and_gives_signs_that_the_parent_sees(tmp_path: Path) -> None:
    parent = SignsOfWork(tmp_path)
    java = Java()
    written = closed(tmp_path, java, keep_classes=True)
    assert written == ["is asked no more", "begins to write", "ends", "writes", "is kept"]
    assert parent.came()
    java.give_sign()
    assert parent.came(), "the copy gives them too"


@pytest.mark.parametrize(("is_awaited", "seconds"), [(True, 0), (False, 3)])
def test_java_that_writes_nothing_ends_as_ever(tmp_path: Path, is_awaited: bool, seconds: int) -> None:
    ended = closed(tmp_path, Java(is_awaited=is_awaited), keep_classes=False)
    assert ended == ["is asked no more", f"ends within {seconds} s"]
    assert not SignsOfWork(tmp_path).came()
