"""The properties file and the files with secrets: modes, owners, links, half-written files."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from yarrow.client.yarn.application_files import ApplicationFiles, SessionProperties
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.application import ClientSecrets
from yarrow.runtime.yarn.gateways import YarnError

ID = "application_1700000000000_0001"
OTHER = "application_1700000000000_0002"


@pytest.fixture
def files(tmp_path: Path) -> ApplicationFiles:
    return ApplicationFiles(tmp_path, "joe")


def secrets(application_id: str = ID) -> ClientSecrets:
    return ClientSecrets(
        application_id=application_id,
        name="a session",
        rest_token="planted-token",
        skein_certificate=b"certificate",
        skein_key=b"planted-key",
    )


def test_the_properties_file_has_flinks_name_and_keys(files: ApplicationFiles, tmp_path: Path) -> None:
    session = SessionProperties(ID, {"a.b": "1", "c": "x=y", "path": "C:\\new\\dir", "lines": "1\n2"})
    assert files.write_properties(session) == tmp_path / ".yarrow-properties-joe"
    text = (tmp_path / ".yarrow-properties-joe").read_text()
    assert f"\napplicationID={ID}\n" in text
    assert "\ndynamicPropertiesString=a.b=1@@c=x=y@@" in text
    assert files.read_properties() == session


def test_a_properties_file_of_flinks_own_client_is_read(files: ApplicationFiles, tmp_path: Path) -> None:
    text = (
        f"#Generated YARN properties file\n#Sat Nov 21 2026\ndynamicPropertiesString=\napplicationID={ID}\n"
    )
    write_mode(tmp_path / ".yarrow-properties-joe", text.encode(), 0o644)
    assert files.read_properties() == SessionProperties(ID)


def test_nothing_there_is_nothing(files: ApplicationFiles) -> None:
    assert files.read_properties() is None
    assert files.read_secrets(ID) is None
    assert files.known_applications() == []
    files.forget(ID)


def test_secrets_are_for_their_owner_alone(files: ApplicationFiles, tmp_path: Path) -> None:
    path = files.write_secrets(secrets())
    assert path == tmp_path / f".yarrow-application-{ID}"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert files.read_secrets(ID) == secrets()
    assert files.known_applications() == [ID]
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660])
def test_secrets_that_others_may_read_are_not_used(files: ApplicationFiles, mode: int) -> None:
    path = files.write_secrets(secrets())
    path.chmod(mode)
    with pytest.raises(YarnError, match=r"open to others"):
        files.read_secrets(ID)


def test_a_properties_file_that_others_may_write_is_not_used(files: ApplicationFiles) -> None:
    path = files.write_properties(SessionProperties(ID))
    path.chmod(0o622)
    with pytest.raises(YarnError, match=r"open to others"):
        files.read_properties()


def test_links_are_not_followed(files: ApplicationFiles, tmp_path: Path) -> None:
    path = files.write_secrets(secrets())
    target = tmp_path / "elsewhere"
    path.rename(target)
    path.symlink_to(target)
    with pytest.raises(YarnError, match=r"cannot be read"):
        files.read_secrets(ID)
    files.write_secrets(secrets())
    assert not path.is_symlink()
    assert target.read_bytes() == path.read_bytes()


def test_what_is_no_plain_file_is_refused_at_once(files: ApplicationFiles, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / f".yarrow-application-{ID}", 0o600)
    with pytest.raises(YarnError, match=r"no plain file"):
        files.read_secrets(ID)


def test_a_file_of_another_content_keeps_it_out_of_the_message(
    files: ApplicationFiles, tmp_path: Path
) -> None:
    write_mode(tmp_path / f".yarrow-application-{ID}", b'{"rest_token": "planted-token"}', 0o600)
    with pytest.raises(YarnError) as refused:
        files.read_secrets(ID)
    assert "planted" not in str(refused.value)


def test_only_the_session_that_ends_is_forgotten(files: ApplicationFiles) -> None:
    files.write_secrets(secrets(ID))
    files.write_secrets(secrets(OTHER))
    files.write_properties(SessionProperties(ID))
    files.forget(OTHER)
    assert files.read_properties() == SessionProperties(ID)
    assert files.known_applications() == [ID]
    files.forget(ID)
    assert files.read_properties() is None
    assert not files.properties_path.exists()


def test_secrets_of_ended_applications_go_but_of_the_session_that_is_used(files: ApplicationFiles) -> None:
    running = "application_1700000000000_0003"
    for application_id in (ID, OTHER, running):
        files.write_secrets(secrets(application_id))
    files.write_properties(SessionProperties(ID))
    asked: list[str] = []

    def has_ended(application_id: str) -> bool:
        asked.append(application_id)
        return application_id != running

    files.forget_ended(has_ended)
    # Commands that name nothing are to say of it that it has ended, and not to run elsewhere.
    assert files.known_applications() == [ID, running]
    assert files.read_properties() == SessionProperties(ID)
    assert ID not in asked


def test_files_of_other_users_are_not_this_ones(
    files: ApplicationFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder for temporary files is everybody's."""
    files.write_secrets(secrets(ID))
    own = os.geteuid()
    monkeypatch.setattr("os.geteuid", lambda: own + 1)
    assert files.known_applications() == []
    files.forget_ended(lambda application_id: True)
    monkeypatch.undo()
    assert files.known_applications() == [ID]


def test_files_of_other_users_are_not_read(files: ApplicationFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_secrets(secrets())
    files.write_properties(SessionProperties(ID))
    other = os.geteuid() + 1
    monkeypatch.setattr("os.geteuid", lambda: other)
    for read in (lambda: files.read_secrets(ID), files.read_properties):
        with pytest.raises(YarnError, match="belongs to another user"):
            read()


def test_where_nobody_tells_what_has_ended_all_stays(files: ApplicationFiles) -> None:
    def has_ended(application_id: str) -> bool:
        raise YarnError("nobody answers")

    files.write_secrets(secrets(ID))
    files.forget_ended(has_ended)
    assert files.known_applications() == [ID]


@pytest.mark.parametrize("wrong", ["", "../../etc/passwd", "application_1", f"{ID}/x", "job_1_1"])
def test_ids_are_checked_before_they_are_paths(files: ApplicationFiles, wrong: str) -> None:
    with pytest.raises(YarnError, match=r"no application's id"):
        files.read_secrets(wrong)


def test_a_properties_file_that_names_nothing_is_named(files: ApplicationFiles, tmp_path: Path) -> None:
    write_mode(tmp_path / ".yarrow-properties-joe", b"applicationID=\n", 0o600)
    with pytest.raises(YarnError, match=r"\.yarrow-properties-joe names no application"):
        files.read_properties()


def test_the_folder_is_the_configured_one(tmp_path: Path) -> None:
    configured = Settings({"yarn.properties-file.location": str(tmp_path / "mine")})
    path = ApplicationFiles.of(configured).write_properties(SessionProperties(ID))
    assert path.parent == tmp_path / "mine"


def test_a_folder_that_cannot_be_written_names_the_setting(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(YarnError, match=r"yarn\.properties-file\.location"):
        ApplicationFiles(tmp_path / "file", "joe").write_properties(SessionProperties(ID))


def write_mode(path: Path, data: bytes, mode: int) -> None:
    path.write_bytes(data)
    path.chmod(mode)
