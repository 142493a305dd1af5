"""The TCP ports of workers: one of the range for each, told to peers as it is or by the port that leads to it."""

from __future__ import annotations

import socket

import pytest

from tests.support.worker_harness import WorkerHarness
from yarrow.container.network.data_ports import DataPorts, NoFreeDataPortError
from yarrow.container.supervisor.task_executor_settings import settings_of
from yarrow.runtime.common.ids import ResourceID, ResourceManagerID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ContradictoryOptions
from yarrow.runtime.rpc.bootstrap import PemIdentity, TaskExecutorBootstrap

HOST = "127.0.0.1"


def free_ports(count: int) -> list[int]:
    """Ports in rising order that nobody listens on now."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = sorted(sock.getsockname()[1] for sock in sockets)
    for sock in sockets:
        sock.close()
    return ports


def ports_of(**options: str) -> DataPorts:
    return DataPorts.of(
        Settings({f"taskmanager.data.{key.replace('_', '-')}": v for key, v in options.items()})
    )


def test_a_worker_listens_where_the_bind_host_says() -> None:
    (port,) = free_ports(1)
    ports = DataPorts.of(Settings({"taskmanager.bind-host": HOST, "taskmanager.data.port": str(port)}))
    server, told = ports.listen("127.0.0.61")
    with server:
        assert server.getsockname() == (HOST, port) and told == port
    server, _ = ports_of().listen("127.0.0.61")
    with server:
        assert server.getsockname()[0] == "127.0.0.61", "without one, where its peers are told"


def test_without_a_setting_any_port_is_taken_and_told() -> None:
    server, told = ports_of().listen(HOST)
    with server:
        assert told == server.getsockname()[1] > 0


def test_each_takes_the_next_free_port_until_none_is_left() -> None:
    first, second = free_ports(2)
    ports = ports_of(port=f"{first},{second}")
    one, told_one = ports.listen(HOST)
    two, told_two = ports.listen(HOST)
    with one, two:
        assert (told_one, told_two) == (first, second)
        assert [sock.getsockname()[1] for sock in (one, two)] == [first, second]
        with pytest.raises(NoFreeDataPortError, match=f"no port of {first},{second} is free on {HOST}"):
            ports.listen(HOST)


def test_peers_are_told_the_port_that_leads_to_the_bound_one() -> None:
    first, second = free_ports(2)
    ports = ports_of(bind_port=f"{first},{second}", port="6000-6001")
    one, told_one = ports.listen(HOST)
    two, told_two = ports.listen(HOST)
    with one, two:
        assert (told_one, told_two) == (6000, 6001)
    server, told = ports_of(bind_port=str(first)).listen(HOST)
    with server:
        assert told == first


def test_workers_exchange_over_the_ports_of_the_range() -> None:
    first, second = free_ports(2)
    configuration = {"taskmanager.data.port": f"{first},{second}"}
    with WorkerHarness(2, processes=False, tcp=True, configuration=configuration) as workers:
        assert [address.port for address in workers.addresses] == [first, second]


@pytest.mark.parametrize("listens", [True, False])
def test_a_task_executor_with_more_slots_than_ports_does_not_start(listens: bool, tmp_path: object) -> None:
    bootstrap = TaskExecutorBootstrap(
        application_id="a",
        resource_id=ResourceID("t"),
        resource_manager_address="",
        resource_manager_id=ResourceManagerID(""),
        identity=PemIdentity(),
        host=HOST,
        bind_host=HOST,
        data_secret=b"s" * 32,
        configuration={"taskmanager.data.port": "50100-50101", "taskmanager.memory.process.size": "2g"},
        log_directory=str(tmp_path),
        working_directory=str(tmp_path),
        slots=3,
        listen_tcp=listens,
    )
    if not listens:
        # Its workers talk over Unix sockets alone.
        assert settings_of(bootstrap).slots == 3
        return
    with pytest.raises(ContradictoryOptions, match="2 port\\(s\\), but each of the 3 slots"):
        settings_of(bootstrap)
