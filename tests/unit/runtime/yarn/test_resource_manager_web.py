"""Reads of the ResourceManager's web server, from answers as Hadoop 3.5 gives them, over real HTTP."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import pytest

from tests.support.services.http_threads import running_in_thread
from yarrow.runtime.yarn.gateways import ApplicationNotFoundError, FinalStatus, YarnState
from yarrow.runtime.yarn.resource_manager_web import ResourceManagerWeb, ResourceManagerWebError

ID = "application_1795277999336_0007"
APPLICATION: dict[str, Any] = {
    "id": ID,
    "user": "joe",
    "name": "a session",
    "queue": "root.default",
    "state": "RUNNING",
    "finalStatus": "UNDEFINED",
    "diagnostics": "",
    "trackingUrl": f"http://rm:8088/proxy/{ID}/",
    "applicationTags": "a,b",
    "startedTime": 5,
    "finishedTime": 0,
    "amRPCAddress": "node:4242",
    "amContainerLogs": "http://node:8042/logs",
}
INFORMATION = [
    {"name": "memory-mb", "maximumAllocation": 6656, "minimumAllocation": 128},
    {"name": "vcores", "maximumAllocation": 8, "minimumAllocation": 1},
]
CAPACITY_SCHEDULER: dict[str, Any] = {
    "type": "capacityScheduler",
    "queueName": "root",
    "queues": {
        "queue": [
            {
                "type": "capacitySchedulerLeafQueueInfo",
                "queueName": "default",
                "queuePath": "root.default",
                "state": "RUNNING",
                "usedCapacity": 8.5,
                "absoluteUsedCapacity": 7.7,
                "numApplications": 1,
                "pendingContainers": 3,
                "capacities": {
                    "queueCapacitiesByPartition": [
                        {
                            "configuredMinResource": {
                                "resourceInformations": {"resourceInformation": INFORMATION}
                            }
                        }
                    ]
                },
            },
            {
                "queueName": "a",
                "queues": {"queue": [{"queueName": "b", "queuePath": "root.a.b", "state": "STOPPED"}]},
            },
        ]
    },
}
FAIR_SCHEDULER: dict[str, Any] = {
    "type": "fairScheduler",
    "rootQueue": {
        "queueName": "root",
        "childQueues": {"queue": [{"queueName": "root.joe", "numActiveApps": 2}]},
    },
}


class Answers(BaseHTTPRequestHandler):
    by_path: ClassVar[dict[str, tuple[int, str]]] = {}

    def do_GET(self) -> None:
        status, text = self.by_path.get(self.path, (404, json.dumps({"RemoteException": {}})))
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


@pytest.fixture
def address() -> Iterator[str]:
    Answers.by_path = {}
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    with running_in_thread(server, "resource-manager"):
        yield f"http://127.0.0.1:{server.server_address[1]}"


def answer(path: str, content: object, status: int = 200) -> None:
    Answers.by_path[f"/ws/v1/cluster/{path}"] = (status, json.dumps(content))


def test_a_report(address: str) -> None:
    answer(f"apps/{ID}", {"app": APPLICATION})
    status = ResourceManagerWeb([address]).application(ID)
    assert status.report.state is YarnState.RUNNING
    assert status.report.final_status is FinalStatus.UNDEFINED
    assert status.report.tags == {"a", "b"}
    assert status.master_address == "node:4242"


@pytest.mark.parametrize("unregistered", ["N/A:-1", "node:-1", "", None])
def test_a_master_that_has_not_registered_has_no_address(address: str, unregistered: str | None) -> None:
    answer(f"apps/{ID}", {"app": {**APPLICATION, "amRPCAddress": unregistered, "state": "ACCEPTED"}})
    assert ResourceManagerWeb([address]).application(ID).master_address == ""


def test_an_unknown_application(address: str) -> None:
    with pytest.raises(ApplicationNotFoundError, match=ID):
        ResourceManagerWeb([address]).application(ID)


def test_the_limit_of_attempts_is_the_first_property_that_is_set(address: str) -> None:
    each, everywhere = "yarn.resourcemanager.am.max-attempts", "yarn.resourcemanager.am.global.max-attempts"
    web = ResourceManagerWeb([address])
    # As Hadoop answers for one that is not set.
    Answers.by_path[f"/conf?name={each}"] = Answers.by_path[f"/conf?name={everywhere}"] = (404, "")
    assert web.most_attempts() is None
    Answers.by_path[f"/conf?name={each}"] = (200, json.dumps({"property": {"key": each, "value": "5"}}))
    assert web.most_attempts() == 5
    Answers.by_path[f"/conf?name={everywhere}"] = (200, json.dumps({"property": {"value": "3"}}))
    assert web.most_attempts() == 3
    Answers.by_path[f"/conf?name={everywhere}"] = (200, "{}")
    with pytest.raises(ResourceManagerWebError, match="does not report"):
        web.most_attempts()


def test_what_is_said_of_an_attempt(address: str) -> None:
    path = f"/ws/v1/cluster/apps/{ID}/appattempts/appattempt_1795277999336_0007_000002"
    web = ResourceManagerWeb([address])
    text = "AM Container for it exited with  exitCode: -100"
    Answers.by_path[path] = (200, f"<appAttempt><diagnosticsInfo>{text}</diagnosticsInfo></appAttempt>")
    assert web.diagnostics_of_attempt(ID, 2) == text
    Answers.by_path[path] = (200, "<appAttempt/>")
    assert web.diagnostics_of_attempt(ID, 2) == ""
    Answers.by_path[path] = (404, "")
    assert web.diagnostics_of_attempt(ID, 2) == ""
    for status, body in ((200, "{}"), (500, "<RemoteException/>")):
        Answers.by_path[path] = (status, body)
        with pytest.raises(ResourceManagerWebError, match=f"status {status} for an attempt"):
            web.diagnostics_of_attempt(ID, 2)


def test_applications_come_oldest_first_and_by_name(address: str) -> None:
    path = "apps?states=NEW,NEW_SAVING,SUBMITTED,ACCEPTED,RUNNING&applicationTypes=skein"
    younger = {**APPLICATION, "id": "application_1_8", "startedTime": 9, "name": "other"}
    answer(path, {"apps": {"app": [younger, APPLICATION]}})
    web = ResourceManagerWeb([address])
    assert [one.report.application_id for one in web.applications()] == [ID, "application_1_8"]
    assert [one.report.application_id for one in web.applications(name="other")] == ["application_1_8"]
    answer(path, {"apps": None})
    assert web.applications() == []


def test_labels_of_nodes(address: str) -> None:
    web = ResourceManagerWeb([address])
    # What YARN says that has none, or does not use them.
    answer("get-node-labels", {})
    assert web.node_labels() == frozenset()
    answer("get-node-labels", {"nodeLabelInfo": {"name": "gpu", "exclusivity": "true"}})
    assert web.node_labels() == {"gpu"}
    answer("get-node-labels", {"nodeLabelInfo": [{"name": "gpu"}, {"name": "ssd"}]})
    assert web.node_labels() == {"gpu", "ssd"}


def test_queues_of_the_capacity_scheduler(address: str) -> None:
    answer("scheduler", {"scheduler": {"schedulerInfo": CAPACITY_SCHEDULER}})
    default, inner = ResourceManagerWeb([address]).leaf_queues()
    assert (default.name, default.path, default.pending_containers) == ("default", "root.default", 3)
    assert (default.maximum_memory_mb, default.maximum_vcores) == (6656, 8)
    assert (inner.name, inner.path, inner.state, inner.maximum_memory_mb) == ("b", "root.a.b", "STOPPED", 0)


def test_queues_of_the_fair_scheduler(address: str) -> None:
    answer("scheduler", {"scheduler": {"schedulerInfo": FAIR_SCHEDULER}})
    (queue,) = ResourceManagerWeb([address]).leaf_queues()
    assert (queue.name, queue.path, queue.state) == ("joe", "root.joe", "RUNNING")


@pytest.mark.parametrize("status", [401, 403, 500])
def test_a_refusal_is_no_answer(address: str, status: int) -> None:
    answer(f"apps/{ID}", {"error": "who are you"}, status)
    with pytest.raises(ResourceManagerWebError, match=str(status)):
        ResourceManagerWeb([address]).application(ID)


def test_one_that_stands_by_is_passed_over_and_then_left_out(address: str) -> None:
    answer(f"apps/{ID}", {"app": APPLICATION})
    gone = "http://127.0.0.1:1"
    web = ResourceManagerWeb([gone, address])
    assert web.application(ID).report.name == "a session"
    Answers.by_path[f"/ws/v1/cluster/apps/{ID}"] = (
        200,
        "This is standby RM. The redirect url is: http://other",
    )
    with pytest.raises(ResourceManagerWebError) as failed:
        web.application(ID)
    # The one that answered last is asked first.
    assert str(failed.value).index("standby") < str(failed.value).index(gone)


def test_without_an_address_it_says_so() -> None:
    with pytest.raises(ResourceManagerWebError, match="no address"):
        ResourceManagerWeb([]).metrics()
