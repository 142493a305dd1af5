"""What a process finds in its container."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from yarrow.runtime.config.options import high_availability
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.yarn.application import ApplicationDescription, ContainerSecrets, DeploymentMode
from yarrow.runtime.yarn.container_files import (
    ContainerFolder,
    ContainerFolderError,
    configuration_of,
    read_description,
    read_secrets,
    request_of,
)
from yarrow.runtime.yarn.distutils_stand_in import LooseVersion
from yarrow.runtime.yarn.layout import DESCRIPTION_FILE

SECRETS = ContainerSecrets(application_secret_id="id", identity=PemIdentity(), data_secret=b"secret")


def description(**configuration: str) -> ApplicationDescription:
    return ApplicationDescription(
        mode=DeploymentMode.SESSION, name="a", configuration=configuration, interpreter="python"
    )


def test_a_container_tells_application_attempt_host_and_logs(tmp_path: Path) -> None:
    folder = ContainerFolder.of(
        {
            "CONTAINER_ID": "container_e17_1700000000000_0042_02_000003",
            "NM_HOST": "node7",
            "LOG_DIRS": f"{tmp_path}/a,{tmp_path}/b",
        }
    )
    assert (folder.application_id, folder.attempt, folder.host) == (
        "application_1700000000000_0042",
        2,
        "node7",
    )
    assert folder.log_directory == tmp_path / "a"
    assert ContainerFolder.of({"CONTAINER_ID": "container_17_1_01_000001"}).attempt == 1


@pytest.mark.parametrize("value", ["", "container_1", "application_1_2"])
def test_outside_a_container_nothing_begins(value: str) -> None:
    with pytest.raises(ContainerFolderError, match="CONTAINER_ID"):
        ContainerFolder.of({"CONTAINER_ID": value})


def test_secrets_are_tightened_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(msgspec.msgpack.encode(SECRETS))
    path.chmod(0o644)
    assert read_secrets(path, ContainerSecrets) == SECRETS
    assert path.stat().st_mode & 0o777 == 0o600


def test_secrets_that_stay_readable_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "secret"
    path.write_bytes(msgspec.msgpack.encode(SECRETS))
    path.chmod(0o640)

    def refuse(path: Path, mode: int) -> None:
        raise PermissionError("read only")

    monkeypatch.setattr(os, "chmod", refuse)
    with pytest.raises(ContainerFolderError, match=r"mode 0640.*cannot be tightened"):
        read_secrets(path, ContainerSecrets)


def test_what_is_missing_or_of_another_version_is_named_without_its_content(tmp_path: Path) -> None:
    with pytest.raises(ContainerFolderError, match=DESCRIPTION_FILE):
        read_description(tmp_path)
    (tmp_path / DESCRIPTION_FILE).write_text('{"mode": "session"}')
    with pytest.raises(ContainerFolderError, match="same version"):
        read_description(tmp_path)
    (tmp_path / "secret").write_bytes(b"planted-secret")
    with pytest.raises(ContainerFolderError) as failure:
        read_secrets(tmp_path / "secret", ContainerSecrets)
    assert "planted" not in str(failure.value)


def test_secret_keys_join_the_configuration_and_the_application_names_its_storage() -> None:
    config = configuration_of(description(), {"s3.secret-key": "k"}, "application_1_2")
    assert config.text("s3.secret-key") == "k"
    assert config.get(high_availability.CLUSTER_ID) == "application_1_2"
    chosen = description(**{"high-availability.cluster-id": "mine"})
    assert configuration_of(chosen, {}, "application_1_2").get(high_availability.CLUSTER_ID) == "mine"


def test_skein_is_loaded_without_setuptools() -> None:
    program = "import sys, yarrow.runtime.yarn.skein_bridge; print(*sys.modules)"
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, check=True
    )
    assert not {"setuptools", "pkg_resources", "distutils"} & set(finished.stdout.split())


def test_versions_are_compared_by_their_numbers() -> None:
    assert LooseVersion("1.9.2") < "1.18.0"
    assert not LooseVersion("1.85.0") < "1.18.0"


def test_what_the_resource_manager_did_not_set_is_named() -> None:
    assert request_of({"ONE": "1", "TWO": "2", "OTHER": "3"}, ("ONE", "TWO")) == {"ONE": "1", "TWO": "2"}
    with pytest.raises(ContainerFolderError, match=r"has no TWO, THREE.*do not start it by hand"):
        request_of({"ONE": "1", "TWO": ""}, ("ONE", "TWO", "THREE"))
