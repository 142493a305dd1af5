"""Settings of the control plane from a configuration."""

from __future__ import annotations

import msgspec
import pytest

from tests.support.job_graphs import Stage, linear_job
from yarrow.am.checkpoint.settings import CheckpointSettings, StorageKind
from yarrow.am.control_plane_settings import control_plane_settings
from yarrow.runtime.common.errors import JobSubmissionError
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import ShippedFile, UserCode
from yarrow.runtime.graph.states import JobType

HIGHLY_AVAILABLE = {
    "high-availability.type": "zookeeper",
    "high-availability.storageDir": "hdfs://name:8020/ha",
    "high-availability.cluster-id": "/blue",
}
INTERVAL = {"execution.checkpointing.interval": "1 s"}


def test_a_cluster_has_the_settings_of_its_configuration() -> None:
    config = Settings(
        {"rest.await-leader-timeout": "7 s", "cluster.evenly-spread-out-slots": "true"}, "a test"
    )
    settings = control_plane_settings(config, "/nowhere", 3, can_request=False)
    assert settings.resource_manager.slots.evenly_spread_out
    assert settings.leader_timeout == 7


def checkpoints_of(config: dict[str, str], job: dict[str, str]) -> CheckpointSettings:
    settings = control_plane_settings(Settings(config), "/nowhere", 1, can_request=False).dispatcher
    graph = msgspec.structs.replace(linear_job(Stage(1)), configuration=job)
    settings.check_job(graph)
    return settings.job_master(graph).checkpoints


def test_checkpoints_of_a_job_that_is_to_survive_its_master_are_not_in_its_memory() -> None:
    found = checkpoints_of(HIGHLY_AVAILABLE, INTERVAL)
    assert (found.storage, found.directory) == (
        StorageKind.FILE_SYSTEM,
        "hdfs://name:8020/ha/blue/checkpoints",
    )
    in_memory = INTERVAL | {"execution.checkpointing.storage": "jobmanager"}
    found = checkpoints_of(HIGHLY_AVAILABLE, in_memory)
    assert (found.storage, found.directory) == (
        StorageKind.JOB_MANAGER,
        "hdfs://name:8020/ha/blue/checkpoints",
    )
    own = INTERVAL | {"execution.checkpointing.dir": "hdfs://name:8020/own"}
    assert checkpoints_of(HIGHLY_AVAILABLE, own).directory == "hdfs://name:8020/own"
    # The job cannot ask for what the cluster does not have.
    assert checkpoints_of({}, INTERVAL | HIGHLY_AVAILABLE).directory == ""


def test_what_is_to_be_retained_needs_a_folder_of_its_own() -> None:
    retained = {"execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION"}
    with pytest.raises(JobSubmissionError, match=r"line.*retention.*Set execution\.checkpointing\.dir"):
        checkpoints_of(HIGHLY_AVAILABLE, INTERVAL | retained)
    checkpoints_of(HIGHLY_AVAILABLE, retained | {"execution.checkpointing.dir": "hdfs://name:8020/own"})
    checkpoints_of({}, INTERVAL | retained)


def test_a_bounded_job_with_an_interpreter_of_its_own_is_refused_by_name() -> None:
    check = control_plane_settings(Settings({}), "/nowhere", 1, can_request=False).dispatcher.check_job
    archive = ShippedFile(name="env.zip", kind="archive", blob_key="a" * 64, target="env")
    stream = msgspec.structs.replace(
        linear_job(Stage(1)),
        configuration={"python.executable": "env/bin/python"},
        user_code=UserCode(files=(archive,)),
    )
    check(stream)
    with pytest.raises(JobSubmissionError, match=r"env/bin/python in the job's archive 'env\.zip'"):
        check(msgspec.structs.replace(stream, job_type=JobType.BATCH))
