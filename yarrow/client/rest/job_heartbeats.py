"""JobHeartbeats: tells an attached job's master that this process lives.

Owner: a daemon thread of its own, which ends with the process, even by SIGKILL: the master waits for that
silence.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from http import HTTPStatus

from yarrow.client.errors import CommandError
from yarrow.client.rest.rest_client import RestClient, RestError
from yarrow.runtime.common.clock import Clock, SystemClock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.options import execution, rpc
from yarrow.runtime.config.settings import Settings


@dataclass(frozen=True, slots=True)
class JobHeartbeatSettings:
    """Seconds between two heartbeats, and seconds of silence after which the job is cancelled."""

    interval: float
    timeout: float

    @staticmethod
    def of(config: Settings, attached: bool) -> JobHeartbeatSettings | None:
        """None for a job that outlives its client. Raises CommandError for a timeout that heartbeats cannot keep."""
        if not attached or not config.get(execution.SHUTDOWN_ON_ATTACHED_EXIT):
            return None
        found = JobHeartbeatSettings(
            config.get(rpc.CLIENT_HEARTBEAT_INTERVAL).seconds,
            config.get(rpc.CLIENT_HEARTBEAT_TIMEOUT).seconds,
        )
        if not 0 < found.interval < found.timeout:
            raise CommandError(
                f"{rpc.CLIENT_HEARTBEAT_INTERVAL.key} ({found.interval:g} s) must be shorter than"
                f" {rpc.CLIENT_HEARTBEAT_TIMEOUT.key} ({found.timeout:g} s): the job would be cancelled between two"
                " heartbeats."
            )
        return found


class JobHeartbeats:
    """The heartbeats of one job, from now until `stop`, or until the cluster does not know the job any more."""

    def __init__(
        self, rest: RestClient, job_id: str, settings: JobHeartbeatSettings, clock: Clock | None = None
    ) -> None:
        self._rest = rest
        self._path = f"/jobs/{job_id}/clientHeartbeat"
        self._settings = settings
        self._clock = clock or SystemClock()
        self._stopped = threading.Event()
        threading.Thread(target=self._send, name=f"heartbeats {job_id}", daemon=True).start()

    def stop(self) -> None:
        """Ends the heartbeats."""
        self._stopped.set()

    def _send(self) -> None:
        while not self._stopped.is_set():
            # As Flink's clients send it; our master counts from the arrival.
            until = self._clock.epoch_ms() + int(self._settings.timeout * 1000)
            try:
                self._rest.json("PATCH", self._path, {"expiredTimestamp": until})
            except RestError as error:
                if error.status == HTTPStatus.NOT_FOUND:
                    return
            except YarrowError:
                # Nobody answers now, or YARN has not started the next master, which must hear of this
                # process. The thread that waits for the job finds out which.
                pass
            self._stopped.wait(self._settings.interval)
