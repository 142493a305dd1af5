"""Security: who is let in, and what is not believed."""

from __future__ import annotations

from bench.mutation.mutant import Mutant

MUTANTS = (
    Mutant(
        "ClientHandshake.answer",
        "if not hmac.compare_digest(expected, challenge.proof):",
        "if False:",
        killer="test_refused_connections.py::test_a_client_proves_nothing_to_a_server_that_has_not_proved_itself",
    ),
    Mutant(
        "ClusterAccess.task_executor",
        "if info.registration.resource_id == resource_id:",
        "if False:",
        killer="test_paths.py::test_logs_are_read_by_listed_names_alone",
    ),
    Mutant(
        "ClusterAccess.task_executor",
        "info.registration.resource_id == resource_id",
        "info.registration.resource_id != resource_id",
        killer="test_paths.py::test_refusals_name_the_thing",
    ),
    Mutant(
        "ProgramStore.get",
        "if program.id == program_id:",
        "if False:",
        killer="test_programs.py::test_uploads_get_names_of_the_servers_choice",
    ),
    Mutant(
        "ProgramStore.get",
        "program.id == program_id",
        "program.id != program_id",
        killer="test_programs.py::test_uploads_get_names_of_the_servers_choice",
    ),
    Mutant(
        "ServerHandshake.challenge",
        "hello.target_id != self._worker_id",
        "hello.target_id == self._worker_id",
        killer="test_refused_connections.py::test_a_handshake_cannot_be_replayed_or_reflected",
    ),
    Mutant(
        "ServerHandshake.verify",
        'if not hmac.compare_digest(_proof(self._secret, "client", self._hello, self._nonce), proof.proof):',
        "if False:",
        killer="test_refused_connections.py::test_a_handshake_cannot_be_replayed_or_reflected",
    ),
    Mutant(
        "_Server.verify_request",
        "return user_of_connection(client_address, self.server_address) == os.getuid()",
        "return True",
        killer="test_relay.py::test_other_users_of_this_host_are_refused",
    ),
    Mutant(
        "_check_own",
        "if status.st_mode & forbidden:",
        "if False:",
        killer="test_application_files.py::test_secrets_that_others_may_read_are_not_used",
    ),
    Mutant(
        "_check_own",
        "if status.st_uid != os.geteuid():",
        "if False:",
        killer="test_application_files.py::test_files_of_other_users_are_not_read",
    ),
    Mutant(
        "_check_own",
        "status.st_uid != os.geteuid()",
        "status.st_uid == os.geteuid()",
        killer="test_application_files.py::test_a_properties_file_that_names_nothing_is_named",
    ),
    Mutant(
        "_is_own",
        "path.lstat().st_uid == os.geteuid()",
        "path.lstat().st_uid != os.geteuid()",
        killer="test_application_files.py::test_files_of_other_users_are_not_this_ones",
    ),
    Mutant(
        "_listen",
        "if error.errno not in (errno.EADDRINUSE, errno.EACCES):",
        "if False:",
        killer="test_server.py::test_address_of_another_host_is_refused",
    ),
    Mutant(
        "_pieces",
        "min(length, _PIECE)",
        "max(length, _PIECE)",
        killer="test_relay.py::test_a_request_passes_with_the_token_and_without_who_asked",
    ),
    Mutant(
        "_pinned",
        "if hashlib.sha1(der, usedforsecurity=False).hexdigest() == wanted:",
        "if False:",
        killer="test_keystores.py::test_a_fingerprint_shuts_out_others_of_the_same_authority",
    ),
    Mutant(
        "_remove_if_abandoned",
        "status.st_uid != os.getuid()",
        "status.st_uid == os.getuid()",
        killer="test_folders_of_clients.py::test_folders_of_a_killed_client_are_removed_and_those_of_living_ones_stay",
    ),
    Mutant(
        "_unpack_tar",
        "_check_inside(member.linkname, target)",
        "pass",
        killer="test_archives.py::test_hard_links_and_devices_are_no_way_out",
    ),
    Mutant(
        "entrance_of",
        "if settings.entrance is EntranceKind.PROXY:",
        "if False:",
        killer="test_entrances.py::test_nothing_changes_through_the_proxy",
    ),
    Mutant(
        "refusal_of",
        "if len(hosts) != 1 or hosts[0].lower() not in own:",
        "if False:",
        killer="test_relay.py::test_pages_of_others_are_refused",
    ),
    Mutant(
        "refusal_of",
        'if origin is not None and origin.lower() not in {f"http://{name}" for name in own}:',
        "if False:",
        killer="test_relay.py::test_pages_of_others_are_refused",
    ),
    Mutant(
        "running_job",
        "if job.status is not JobStatus.RUNNING:",
        "if False:",
        killer="test_paths.py::test_refusals_name_the_thing",
    ),
    Mutant(
        "tls_version",
        "if text not in _VERSIONS:",
        "if False:",
        killer="test_keystores.py::test_an_unknown_version_of_tls_is_refused",
    ),
    Mutant(
        "user_of_connection",
        "if (fields[1], fields[2]) == wanted:",
        "if False:",
        killer="test_relay.py::test_the_user_of_a_connection",
    ),
)
