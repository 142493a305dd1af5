"""How long one server is waited for: a session outlives that all but one of its servers say nothing."""

from __future__ import annotations

import pytest

from yarrow.runtime.ha.settings import ZooKeeperSettings
from yarrow.runtime.ha.zookeeper_client import handshake_limit


@pytest.mark.parametrize(
    ("servers", "session", "expected"), [(1, 60.0, 5.0), (3, 60.0, 60 / 18), (3, 10.0, 1.0), (1, 12.0, 2.0)]
)
def test_each_server_gets_a_part_of_the_session(servers: int, session: float, expected: float) -> None:
    quorum = ",".join(f"zk{number}:2181" for number in range(servers))
    settings = ZooKeeperSettings(quorum=quorum, root="/r", session_timeout=session)
    assert handshake_limit(settings) == pytest.approx(expected)
    # Silence is noticed after 0.4 of the session, and it leads for 0.9.
    assert (servers - 1) * handshake_limit(settings) < 0.5 * session
