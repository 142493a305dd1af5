"""Java that stands still is noticed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from yarrow.container.batch.spark.java.java_heartbeat import JavaHeartbeat
from yarrow.runtime.rpc.heartbeat import HeartbeatSettings

LIMIT = 60.0
#: Java is silent after three rounds without an answer.
SETTINGS = HeartbeatSettings(0.01, 0.03)


class Java:
    """Answers while it may."""

    def __init__(self) -> None:
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.fails = False
        self.asked = threading.Semaphore(0)
        self.silent_for: list[float] = []
        self.silent = threading.Event()
        self.heartbeat = JavaHeartbeat(self._ask, self._note, SETTINGS)

    def _ask(self) -> None:
        self.asked.release()
        if self.fails:
            raise ConnectionError("no answer")
        self.may_answer.wait(LIMIT)

    def _note(self, seconds: float) -> None:
        self.silent_for.append(seconds)
        self.silent.set()


@pytest.fixture
def java() -> Iterator[Java]:
    made = Java()
    yield made
    made.heartbeat.stop()
    made.may_answer.set()


def test_a_java_that_does_not_answer_is_told_once(java: Java) -> None:
    java.may_answer.clear()
    java.heartbeat.start()
    assert java.silent.wait(LIMIT)
    assert java.silent_for == [SETTINGS.timeout]


def test_a_java_whose_connection_breaks_is_told(java: Java) -> None:
    java.fails = True
    java.heartbeat.start()
    assert java.silent.wait(LIMIT)


def test_nobody_is_asked_behind_the_end(java: Java) -> None:
    java.heartbeat.start()
    assert java.asked.acquire(timeout=LIMIT)
    java.heartbeat.stop()
    threads = [each for each in threading.enumerate() if each.name in ("java heartbeat", "java silence")]
    for thread in threads:
        thread.join(LIMIT)
        assert not thread.is_alive()
