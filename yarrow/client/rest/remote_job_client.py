"""RemoteJobClient: the handle on a job of a cluster, through REST.

Owner: any thread. Once a caller waits for the job, a daemon thread of the client asks for its end, and says
what delays the job. Each other question runs on a thread of a small pool and returns a future.
"""

from __future__ import annotations

import base64
import json
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from yarrow.client.collected_rows import CollectedResults
from yarrow.client.errors import CommandError
from yarrow.client.job_results import merged_values, public_status
from yarrow.client.rest.job_heartbeats import JobHeartbeats, JobHeartbeatSettings
from yarrow.client.rest.rest_client import RestClient
from yarrow.client.rest.rest_operations import OperationFailedError, run_operation
from yarrow.client.stalled_jobs import stalled_text
from yarrow.common.completable_future import CompletableFuture
from yarrow.common.job_client import JobClient
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.common.job_id import JobID
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.backoff import Backoff
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.errors import (
    CheckpointFailedError,
    JobAlreadyEndedError,
    JobCancelledError,
    JobExecutionError,
)
from yarrow.runtime.common.repeated_notice import RepeatedNotice
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import CollectRows
from yarrow.runtime.security.result_proof import ResultProof

T = TypeVar("T")

#: Seconds between two questions for the end of a job: few at first, for short jobs.
_FIRST_PAUSE, _LAST_PAUSE = 0.05, 1.0
#: Questions for the end of a job between two questions for what it waits for.
_LOOKS = 3
#: Seconds after which a fetch of results is answered without rows, and the fetch's time limit.
_FETCH_WAIT, _FETCH_TIMEOUT = 10, 60.0
_ROWS = msgspec.msgpack.Decoder(tuple[CollectRows, ...])


class RemoteJobClient(JobClient):
    """Follows one job by REST."""

    def __init__(
        self,
        rest: RestClient,
        job_graph: JobGraph,
        heartbeats: JobHeartbeatSettings | None = None,
        clock: Clock | None = None,
    ) -> None:
        """The handle on a submitted job.

        With `heartbeats` the client tells the job that the client lives, until the job has ended.
        """
        self._rest = rest
        job_id = self._job_id = job_graph.job_id
        self._heartbeats = None if heartbeats is None else JobHeartbeats(rest, job_id, heartbeats)
        self._name = job_graph.name
        self._result: Future[JobExecutionResult] | None = None
        self._lock = threading.Lock()
        self._waits = RepeatedNotice()
        self._clock = clock or SystemClock()
        self._collected = CollectedResults(job_graph, ResultProof(rest.is_proved, rest.result_key))

    def get_job_id(self) -> JobID:
        return JobID(self._job_id)

    def get_job_status(self) -> CompletableFuture[JobStatus]:
        return in_thread(lambda: public_status(self._rest.get(f"/jobs/{self._job_id}/status")["status"]))

    def cancel(self) -> CompletableFuture[None]:
        def ask() -> None:
            status = public_status(self._rest.get(f"/jobs/{self._job_id}/status")["status"])
            if status.is_globally_terminal_state():
                raise JobAlreadyEndedError(
                    f"job {self._job_id} cannot be cancelled: it is {status.name} already"
                )
            self._rest.json("PATCH", f"/jobs/{self._job_id}?mode=cancel")

        return in_thread(ask)

    def stop_with_savepoint(
        self, advance_to_end_of_event_time: bool, savepoint_directory: str | None = None
    ) -> CompletableFuture[str]:
        body = {"targetDirectory": savepoint_directory, "drain": advance_to_end_of_event_time}
        return self._savepoint("stop", body)

    def trigger_savepoint(self, savepoint_directory: str | None = None) -> CompletableFuture[str]:
        return self._savepoint("savepoints", {"target-directory": savepoint_directory})

    def _savepoint(self, path: str, body: dict[str, Any]) -> CompletableFuture[str]:
        job = f"/jobs/{self._job_id}"

        def ask() -> str:
            try:
                done = run_operation(self._rest, f"{job}/{path}", body, f"{job}/savepoints")
            except OperationFailedError as error:
                raise CheckpointFailedError(str(error)) from None
            return str(done["location"])

        return in_thread(ask)

    def get_accumulators(self) -> CompletableFuture[dict[str, Any]]:
        def ask() -> dict[str, Any]:
            found = self._rest.get(f"/jobs/{self._job_id}/accumulators")
            values = {entry["name"]: entry["value"] for entry in found["user-task-accumulators"]}
            values |= found["serialized-user-task-accumulators"]
            return merged_values({name: decoded_value(value) for name, value in values.items()})

        return in_thread(ask)

    def get_job_execution_result(self) -> CompletableFuture[JobExecutionResult]:
        with self._lock:
            if self._result is None:
                self._result = Future()
                threading.Thread(
                    target=self._follow, args=(self._result,), name=f"job {self._job_id}", daemon=True
                ).start()
        result = CompletableFuture(self._result).then_apply(lambda result: result)
        return result.explained_by(self._why_it_runs)

    def _why_it_runs(self) -> str:
        try:
            found = self._rest.get(f"/jobs/{self._job_id}/event-time")
        except CommandError:
            # The job may have ended meanwhile, or nobody answers: the caller's own error stays what it is.
            return ""
        holders = [(holder["explanation"], holder["remedy"]) for holder in found["holders"]]
        return stalled_text(self._job_id, holders, found["status"])

    def get_web_interface_url(self) -> str | None:
        """Address of the cluster's REST server."""
        return self._rest.address

    def fetch_collected(self, collect_id: str, max_rows: int) -> Sequence[Any] | None:
        """The next rows; waits until there are some; None = the end. Raises the job's error."""
        collected, pause = self._collected.of(collect_id), threading.Event()
        path = f"/jobs/{self._job_id}/collect/{quote(collect_id)}?max_rows={max_rows}&wait={_FETCH_WAIT}"
        while True:
            after = f"&version={quote(collected.position.version)}&delivery={collected.position.delivery}"
            messages = _ROWS.decode(self._rest.request("GET", path + after, timeout=_FETCH_TIMEOUT))
            if not messages:
                pause.wait(_FIRST_PAUSE)  # A new master that is taking the job over answers at once.
            rows = collected.take(messages)
            if rows is None:
                self.get_job_execution_result().result()
                return None
            if rows:
                return rows

    def _follow(self, result: Future[JobExecutionResult]) -> None:
        try:
            result.set_result(self._wait())
        except CommandError as error:
            text = f"Job {self._name!r} ({self._job_id}) cannot be followed any more. {error}"
            result.set_exception(JobExecutionError(text, self._job_id))
        except BaseException as error:
            result.set_exception(error)
        finally:
            if self._heartbeats is not None:
                self._heartbeats.stop()

    def _wait(self) -> JobExecutionResult:
        pause, looks = threading.Event(), 0
        backoff = Backoff(_FIRST_PAUSE, _LAST_PAUSE, factor=1.5)
        while True:
            answer = self._rest.get(f"/jobs/{self._job_id}/execution-result")
            if answer["status"]["id"] == "COMPLETED":
                return self._ended(answer["job-execution-result"])
            looks += 1
            if backoff.is_longest and looks % _LOOKS == 0:
                self._say_what_it_waits_for()
            pause.wait(backoff.next_seconds())

    def _say_what_it_waits_for(self) -> None:
        """Prints a line on standard error when the obstacle of the job changes, and every minute."""
        waits = str(self._rest.get(f"/jobs/{self._job_id}").get("waiting-for", ""))
        said = self._waits.look(waits, self._clock.monotonic())
        if said is not None:
            text = f"waits: it {said}" if said else "waits no more."
            print(f"Job {self._name!r} ({self._job_id}) {text}", file=sys.stderr, flush=True)

    def _ended(self, result: dict[str, Any]) -> JobExecutionResult:
        match result["application-status"]:
            case "SUCCEEDED":
                values = {
                    name: decoded_value(value)
                    for name, value in (result.get("accumulator-results") or {}).items()
                }
                return JobExecutionResult(JobID(self._job_id), result["net-runtime"], merged_values(values))
            case "CANCELED":
                raise JobCancelledError(f"Job {self._name!r} ({self._job_id}) was cancelled.", self._job_id)
        raise JobExecutionError(self._failure(), self._job_id)

    def _failure(self) -> str:
        """The user's own traceback first, from the exception history."""
        history = self._rest.get(f"/jobs/{self._job_id}/exceptions")
        entries = history.get("exceptionHistory", {}).get("entries", [])
        name = f"Job {self._name!r} ({self._job_id})"
        if not entries:
            return f"{name} failed; the cluster kept no cause."
        first = entries[0]
        task = first.get("taskName")
        return f"{first['stacktrace'].rstrip()}\n\n{name} failed{f' in {task}' if task else ''}."


def decoded_value(value: Any) -> Any:
    """An accumulator's value, decoded from JSON or base64 of JSON."""
    if not isinstance(value, str):
        return value
    for read in (lambda text: text, lambda text: base64.b64decode(text, validate=True)):
        try:
            return json.loads(read(value))
        except ValueError:
            continue
    return value


def in_thread(question: Callable[[], T]) -> CompletableFuture[T]:
    answer: CompletableFuture[T] = CompletableFuture()

    def ask() -> None:
        try:
            answer.complete(question())
        except BaseException as error:
            answer.complete_exceptionally(error)

    threading.Thread(target=ask, name="yarrow-rest", daemon=True).start()
    return answer
