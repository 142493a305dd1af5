"""Bodies about the cluster as a whole and its control plane process.

Owner: none (declarations).
"""

from __future__ import annotations

from collections.abc import Iterable

from pydantic import Field

from yarrow.am.rest.models.base import CamelModel, HyphenModel, RestModel
from yarrow.runtime.common.thread_dump import thread_text


class ClusterOverviewBody(HyphenModel):
    """Slots, TaskExecutors and jobs of the cluster."""

    taskmanagers: int = Field(validation_alias="task_executors")
    slots_total: int
    slots_available: int
    jobs_running: int
    jobs_finished: int
    jobs_cancelled: int
    jobs_failed: int
    #: The version of Flink whose API this is.
    flink_version: str
    flink_commit: str
    #: The version of Yarrow.
    yarrow_version: str
    #: The attempt of the application on YARN, and after how many YARN gives up; 0 without YARN. Yarrow's.
    yarn_attempt: int = 0
    yarn_max_attempts: int = 0
    #: When the application's delegation tokens end for good, in epoch milliseconds; 0 = it has none that end. Yarrow's.
    yarn_tokens_end: int = 0


class DashboardFeatures(HyphenModel):
    """The actions that the dashboard may offer."""

    web_submit: bool
    web_cancel: bool
    #: Whether the parallelism of a running job can be changed.
    web_rescale: bool
    #: A HistoryServer is a process of its own: this is none.
    web_history: bool = False


class DashboardConfiguration(HyphenModel):
    """Settings of the dashboard; the interval is in milliseconds, the offset of the time zone too."""

    refresh_interval: int
    timezone_name: str
    timezone_offset: int
    flink_version: str
    flink_revision: str
    features: DashboardFeatures


class ConfigurationEntry(RestModel):
    """A key with its value; values of secret keys are hidden."""

    key: str
    value: str


class ProcessRuntime(RestModel):
    """The interpreter; Flink's name is that of its own."""

    version: str
    arch: str
    options: list[str]


class Environment(RestModel):
    """The control plane process."""

    jvm: ProcessRuntime
    #: The folders modules are imported from.
    classpath: list[str]


class LogFile(RestModel):
    """A log file: bytes, and epoch milliseconds of its last change."""

    name: str
    size: int
    mtime: int


class LogList(RestModel):
    """The log files that a client can ask for by name."""

    logs: list[LogFile]


class ThreadInfo(CamelModel):
    """A thread and its stack."""

    thread_name: str
    stringified_thread_info: str


class ThreadDumpBody(CamelModel):
    """The stacks of all threads of a process."""

    thread_infos: list[ThreadInfo]

    @classmethod
    def of_stacks(cls, stacks: Iterable[tuple[str, str]]) -> ThreadDumpBody:
        """The dump of threads by name and stack."""
        infos = [
            ThreadInfo(thread_name=name, stringified_thread_info=thread_text(name, stack))
            for name, stack in stacks
        ]
        return cls(thread_infos=infos)


class DataSetEntry(CamelModel):
    """A cached intermediate result."""

    id: str
    is_complete: bool


class DataSets(CamelModel):
    """Cached intermediate results: there are none."""

    data_sets: list[DataSetEntry]


class LogUrl(RestModel):
    """The address of a log."""

    url: str


class StoredBlob(RestModel):
    """A payload was stored; its key is the SHA-256 of its bytes."""

    key: str = Field(pattern="^[0-9a-f]{64}$")
