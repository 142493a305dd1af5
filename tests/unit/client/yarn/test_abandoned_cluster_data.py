"""What killed applications have stored for high availability, and what of it a client removes."""

from __future__ import annotations

from pathlib import Path

from yarrow.client.yarn.abandoned_cluster_data import is_kept_by_application_id, remove_ended
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.ha.records import RecordsError
from yarrow.runtime.ha.settings import CHECKPOINTS_FOLDER, zookeeper_settings
from yarrow.runtime.ha.stored_files import mark_kept
from yarrow.runtime.yarn.gateways import (
    ApplicationNotFoundError,
    ApplicationReport,
    FinalStatus,
    YarnState,
)
from yarrow.runtime.yarn.staging_root import hadoop_user

STATES = {
    "application_1_0001": (YarnState.KILLED, hadoop_user()),
    "application_1_0002": (YarnState.RUNNING, hadoop_user()),
    "application_1_0003": (YarnState.FAILED, hadoop_user()),
    "application_1_0004": (YarnState.FINISHED, hadoop_user()),
    "application_1_0005": (YarnState.KILLED, "somebody-else"),
}


def configuration(folder: Path, **more: str) -> Settings:
    return Settings(
        {
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": "127.0.0.1:1",
            "high-availability.storageDir": str(folder),
            **more,
        }
    )


def report(application_id: str) -> ApplicationReport:
    if application_id not in STATES:
        raise ApplicationNotFoundError(application_id)
    state, user = STATES[application_id]
    return ApplicationReport(
        application_id, "a", user, "default", state, FinalStatus.UNDEFINED, "", "", frozenset(), 0
    )


def test_only_what_ended_applications_of_this_user_stored_goes(tmp_path: Path) -> None:
    unknown, chosen = "application_1_0009", "blue"
    for name in (*STATES, unknown, chosen):
        (tmp_path / name / "blobs").mkdir(parents=True)
    roots: list[str] = []

    def nodes(config: Settings) -> None:
        root = zookeeper_settings(config).root
        assert (tmp_path / root.rpartition("/")[2]).exists(), "pointers go before what they lead to"
        roots.append(root)
        if root.endswith("0004"):
            raise RecordsError("another secret")

    config = configuration(tmp_path, **{"high-availability.cluster-id": "mine"})
    remove_ended(config, report, nodes)
    assert sorted(roots) == ["/flink/application_1_0001", "/flink/application_1_0004"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "application_1_0002",
        "application_1_0003",
        "application_1_0005",
        unknown,
        chosen,
    ]


def test_checkpoints_that_a_failed_job_keeps_stay(tmp_path: Path) -> None:
    job = tmp_path / "application_1_0004" / CHECKPOINTS_FOLDER / "failed"
    (job / "chk-1").mkdir(parents=True)
    (tmp_path / "application_1_0004" / "blobs").mkdir()
    mark_kept(str(job), "rows are lost")
    remove_ended(configuration(tmp_path), report, lambda config: None)
    assert (job / "chk-1").exists() and not (tmp_path / "application_1_0004" / "blobs").exists()


def test_nothing_is_looked_for_without_high_availability(tmp_path: Path) -> None:
    (tmp_path / "application_1_0001").mkdir()
    config = configuration(tmp_path, **{"high-availability.type": "NONE"})
    remove_ended(config, report)
    remove_ended(configuration(tmp_path / "missing"), report)
    assert [path.name for path in tmp_path.iterdir()] == ["application_1_0001"]
    assert not is_kept_by_application_id(config)
    assert is_kept_by_application_id(configuration(tmp_path))
    assert not is_kept_by_application_id(configuration(tmp_path, **{"high-availability.cluster-id": "a"}))
