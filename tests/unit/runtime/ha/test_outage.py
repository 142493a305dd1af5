"""What is said while ZooKeeper is away: once, at growing intervals, and once when it is back."""

from __future__ import annotations

import itertools
import logging

import pytest

from yarrow.runtime.ha.outage import FIRST_INTERVAL, LONGEST_INTERVAL, Outage, OutageFilter, filtered_logger


def test_an_hour_away_is_a_handful_of_sentences() -> None:
    outage = Outage("zk:2181")
    said = [(now, text) for now in range(3600) if (text := outage.failed("refused", float(now)))]
    moments = [now for now, _ in said]
    assert moments[:4] == [0, FIRST_INTERVAL, 3 * FIRST_INTERVAL, 7 * FIRST_INTERVAL]
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    assert gaps == sorted(gaps) and max(gaps) == LONGEST_INTERVAL and len(said) < 15
    assert said[0][1] == "ZooKeeper at zk:2181 cannot be reached, this process tries on: refused"
    assert said[1][1] == "ZooKeeper at zk:2181 has not been reached for 10 s: refused"
    assert outage.reached(3600.5) == "ZooKeeper at zk:2181 is reached again, after 3600.5 s"
    assert outage.reached(3601.0) == "" and not outage.lasts
    assert outage.failed("refused", 3602.0), "the next one is said at once"


def test_only_attempts_are_kept_back(caplog: pytest.LogCaptureFixture) -> None:
    outage, said = Outage("zk:2181"), list[str]()
    logger = filtered_logger("kazoo.client", OutageFilter(outage, lambda: 5.0, said.append))
    with caplog.at_level(logging.INFO):
        logger.info("Connecting to %s(%s):%r", "zk", "10.0.0.1", 2181)
        for _ in range(5):
            logger.warning("Connection dropped: %s", "socket connection error: Connection refused")
            logger.warning("Transition to CONNECTING")
            logger.info("Connecting to %s(%s):%r", "zk", "10.0.0.1", 2181)
        logger.warning("Session has expired")
        outage.reached(6.0)
        logger.warning("Cannot resolve %s: %s", "zk", "unknown")
    assert [record.getMessage() for record in caplog.records] == [
        "Connecting to zk(10.0.0.1):2181",
        "Session has expired",
    ]
    assert [text.rpartition("tries on: ")[2] for text in said] == [
        "Connection dropped: socket connection error: Connection refused",
        "Cannot resolve zk: unknown",
    ]
