"""RemoteJobClient: what a client that waits for a job says about the job's obstacle, at changes and every minute."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.services.http_threads import running_in_thread
from yarrow.client.rest.remote_job_client import RemoteJobClient
from yarrow.client.rest.rest_client import RestClient
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.runtime.common.clock import ManualClock

#: Seconds after which a result that does not come fails the test.
DEADLINE = 60.0
SLOTS = "has waited for 2 slots; the cluster has 1"
MORE = "has waited for 3 slots; the cluster has 1"


class Cluster:
    """A server of one job; each look at the job finds the next obstacle, and then the job ends."""

    def __init__(self, obstacles: Sequence[tuple[float, str]], clock: ManualClock) -> None:
        """`obstacles`: seconds that pass before a look, and what the job waits for then."""
        left = list(obstacles)

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path.endswith("/execution-result"):
                    self._answer(
                        {"status": {"id": "IN_PROGRESS" if left else "COMPLETED"}}
                        | {"job-execution-result": {"application-status": "SUCCEEDED", "net-runtime": 1}}
                    )
                else:
                    seconds, waits = left.pop(0)
                    clock.advance(seconds)
                    self._answer({"waiting-for": waits})

            def _answer(self, body: object) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(json.dumps(body).encode())

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.rest = RestClient("127.0.0.1", int(self.server.server_address[1]))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def cluster(request: pytest.FixtureRequest, clock: ManualClock) -> Iterator[Cluster]:
    made = Cluster(request.param, clock)
    with running_in_thread(made.server, "cluster"):
        yield made


@pytest.mark.parametrize(
    "cluster",
    [[(0, ""), (1, SLOTS), (30, SLOTS), (29, SLOTS), (1, SLOTS), (5, MORE), (5, MORE), (5, ""), (90, "")]],
    indirect=True,
)
def test_an_obstacle_is_said_when_it_changes_and_every_minute(
    cluster: Cluster, clock: ManualClock, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"_FIRST_PAUSE": 0.001, "_LAST_PAUSE": 0.001, "_LOOKS": 1}.items():
        monkeypatch.setattr(f"yarrow.client.rest.remote_job_client.{name}", value)
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_sequence(1, 2).print()
    graph = env.get_job_graph("shop")
    RemoteJobClient(cluster.rest, graph, clock=clock).get_job_execution_result().result(DEADLINE)
    name = f"Job 'shop' ({graph.job_id})"
    assert capsys.readouterr().err.splitlines() == [
        f"{name} waits: it {SLOTS}",
        f"{name} waits: it {SLOTS}",
        f"{name} waits: it {MORE}",
        f"{name} waits no more.",
    ]
