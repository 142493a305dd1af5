"""Which workers count as being on one host, and where they listen, by `taskmanager.data.transport`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.container.network.test_refused_connections import End
from yarrow.container.supervisor.task_executor_settings import host_key
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import ResourceID
from yarrow.runtime.config.options.taskmanager import DataTransport
from yarrow.runtime.security.certificates import CertificateAuthority


def test_task_executors_of_one_machine_are_one_host_unless_they_are_containers() -> None:
    first, second = ResourceID("container_1_1"), ResourceID("container_1_2")
    for transport in (DataTransport.AUTO, DataTransport.TCP):
        assert host_key(first, transport) == host_key(second, transport)
    contained = host_key(first, DataTransport.CONTAINER)
    assert contained != host_key(second, DataTransport.CONTAINER)
    assert contained == host_key(first, DataTransport.CONTAINER), (
        "workers of one TaskExecutor share their host"
    )


@pytest.mark.parametrize(
    ("transport", "by_tcp", "by_unix"),
    [("auto", False, True), ("container", True, True), ("tcp", True, False)],
)
def test_where_a_worker_listens(tmp_path: Path, transport: str, by_tcp: bool, by_unix: bool) -> None:
    end = End(tmp_path, "one", authority=CertificateAuthority("one", SystemClock()), transport=transport)
    try:
        assert (end.address.port > 0, bool(end.address.unix_path)) == (by_tcp, by_unix)
    finally:
        end.stop()
