"""What the cluster tells of containers: their processes and logs while they run, afterwards, and when their node
is lost. The application is Skein's own with a shell command, so that nothing of the engine is needed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
import skein

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.containers import ContainerProcess
from tests.support.hadoop.layout import user
from tests.support.hadoop.web import delete_folder
from tests.support.services.processes import is_alive
from tests.yarn.waiting import until

#: Seconds for YARN to do what it was asked for.
PATIENCE = 120.0


@pytest.fixture
def client(hadoop: HadoopCluster, hadoop_environment: None) -> Iterator[skein.Client]:
    """A Skein client whose driver ends with the test."""
    with skein.Client(security=skein.Security.new_credentials()) as made:
        yield made


def submit(client: skein.Client, script: str, memory: str = "256 MiB") -> str:
    """Runs a script in one container; the application's id."""
    service = skein.Service(resources=skein.Resources(memory=memory, vcores=1), script=script)
    master = skein.Master(resources=skein.Resources(memory="256 MiB", vcores=1))
    return str(
        client.submit(skein.ApplicationSpec(name="containers", services={"work": service}, master=master))
    )


def eventually(condition: Callable[[], bool], what: str) -> None:
    until(condition, PATIENCE, what)


def sleepers(cluster: HadoopCluster, application: str) -> list[ContainerProcess]:
    return [process for process in cluster.container_processes(application) if process.command == "sleep 600"]


def test_containers_are_seen_while_they_run_and_their_logs_afterwards(
    hadoop: HadoopCluster, client: skein.Client
) -> None:
    application = submit(client, "echo said by the container\nsleep 600")
    eventually(lambda: len(sleepers(hadoop, application)) == 1, "the container runs its script")
    container = sleepers(hadoop, application)[0].container
    assert container in {entry["id"] for entry in hadoop.containers(application)}
    assert hadoop.container_logs(application)[f"{container}/work.log"] == "said by the container\n"
    assert application in hadoop.leftovers().applications

    hadoop.kill_application(application)
    assert hadoop.application(application)["finalStatus"] == "KILLED"
    eventually(lambda: not hadoop.container_processes(application), "no process is left")
    eventually(
        lambda: "said by the container" in "".join(hadoop.container_logs(application).values()),
        "the logs are collected",
    )


@pytest.mark.soak
def test_container_over_its_memory_is_killed(hadoop: HadoopCluster, client: skein.Client) -> None:
    # `tail` holds a line of 600 MB, and cannot write it to somebody who does not read.
    application = submit(client, "head -c 600000000 /dev/zero | tail -n 1 | sleep 600")
    eventually(lambda: hadoop.application(application)["finalStatus"] == "FAILED", "the application failed")
    eventually(
        lambda: "of 256 MB physical memory used" in "".join(hadoop.container_logs(application).values()),
        "the log of the ApplicationMaster names the reason",
    )


def test_process_that_outlives_its_node_manager_is_found_and_ended(
    hadoop: HadoopCluster, client: skein.Client
) -> None:
    if "YARROW_HADOOP_DIRECTORY" in os.environ:
        pytest.skip("others use this cluster: its daemons are not killed")
    application = submit(client, "sleep 600")
    eventually(lambda: len(sleepers(hadoop, application)) == 1, "the container runs its script")
    orphan = sleepers(hadoop, application)[0]
    for node in ("nodemanager1", "nodemanager2"):
        hadoop.kill(node)
    hadoop.kill_application(application)
    assert is_alive(orphan.record)
    assert any(entry.startswith(f"{orphan.pid} {orphan.container}") for entry in hadoop.leftovers().processes)
    for node in ("nodemanager1", "nodemanager2"):
        hadoop.start(node)
    hadoop.wait_until_ready("nodemanager1", "nodemanager2")
    assert is_alive(orphan.record)
    assert [process.record for process in sleepers(hadoop, application)] == [orphan.record]
    hadoop.kill_containers(application)
    assert not is_alive(orphan.record)
    # Its master was lost with its node, and could not remove this.
    delete_folder(hadoop.ports["namenode.web"], f"/user/{user()}/.skein/{application}", user())
