"""State: key groups, tables, snapshots, and what a restore refuses."""

from __future__ import annotations

from bench.mutation.mutant import Mutant

MUTANTS = (
    Mutant(
        "DatabaseKeys.encode_sorted",
        "integers.view(np.uint64), groups",
        "integers, groups",
        killer="test_entries.py::test_negative_integers_lie_behind_the_others_of_their_key_group",
    ),
    Mutant(
        "HeapTable.miss",
        "if self._held and (kind is int or kind is str):",
        "if False:",
        killer="test_heap_table.py::test_a_shard_of_values_that_cannot_change_is_copied_at_its_first_access_unless_it_is_read_already",
    ),
    Mutant(
        "KeyGroupRange.intersection",
        "min(self.end, other.end)",
        "max(self.end, other.end)",
        killer="test_key_groups.py::test_intersection",
    ),
    Mutant(
        "NativeRestore._cut_to_own_groups",
        "KeyGroupRange(*base.key_groups) == self._context.key_groups",
        "KeyGroupRange(*base.key_groups) != self._context.key_groups",
        killer="test_snapshots.py::test_what_is_not_the_jobs_own_or_divided_is_uploaded",
    ),
    Mutant(
        "NativeRestore._cut_to_own_groups",
        "if KeyGroupRange(*base.key_groups) == self._context.key_groups:",
        "if False:",
        killer="test_snapshots.py::test_what_is_not_the_jobs_own_or_divided_is_uploaded",
    ),
    Mutant(
        "NativeRestore._files_of",
        "KeyGroupRange(*base.key_groups) != self._context.key_groups",
        "KeyGroupRange(*base.key_groups) == self._context.key_groups",
        killer="test_snapshots.py::test_what_is_not_the_jobs_own_or_divided_is_uploaded",
    ),
    Mutant(
        "NativeRestore._files_of",
        "if KeyGroupRange(*base.key_groups) != self._context.key_groups:",
        "if False:",
        killer="test_snapshots.py::test_what_is_not_the_jobs_own_or_divided_is_uploaded",
    ),
    Mutant(
        "OperatorStateBackend._known",
        "if known is not None and known.mode is not mode:",
        "if False:",
        killer="test_operator_state.py::test_another_kind_or_type_is_refused_by_name",
    ),
    Mutant(
        "OperatorStateBackend._take",
        "if restored.state.mode is not mode:",
        "if False:",
        killer="test_operator_state.py::test_another_kind_or_type_is_refused_by_name",
    ),
    Mutant(
        "PendingOperatorSnapshot.write",
        "if not self._states and not self._carried:",
        "if False:",
        killer="test_operator_state.py::test_nothing_registered_is_no_handle",
    ),
    Mutant(
        "RegisteringBackend.register",
        "if known != state or lifetimes[0] != lifetimes[1]:",
        "if False:",
        killer="test_heap_backend.py::test_a_name_is_one_state",
    ),
    Mutant(
        "TimeToLive.take_sweep_budget",
        "max(wanted, _LEAST_SWEPT)",
        "min(wanted, _LEAST_SWEPT)",
        killer="test_ttl.py::test_the_sweep_removes_what_nobody_reads",
    ),
    Mutant(
        "UploadedFiles.reusable",
        "if self._last < oldest:",
        "if False:",
        killer="test_snapshots.py::test_files_of_checkpoints_that_are_not_kept_any_more_are_not_referred_to",
    ),
    Mutant(
        "WorkerSnapshotFile._open",
        "if self._closed:",
        "if False:",
        killer="test_storage.py::test_output_of_a_worker",
    ),
    Mutant(
        "_basic",
        'if was.tag in _WHOLE and now.tag == "BIG_DEC":',
        "if False:",
        killer="test_value_serializers.py::test_changes_that_convert",
    ),
    Mutant(
        "_basic",
        "if was.tag in _WHOLE and now.tag in _WHOLE and _WHOLE.index(was.tag) < _WHOLE.index(now.tag):",
        "if False:",
        killer="test_value_serializers.py::test_changes_that_convert",
    ),
    Mutant(
        "_check",
        "if not least <= value <= most:",
        "if False:",
        killer="test_key_groups.py::test_a_parallelism_out_of_range_is_refused",
    ),
    Mutant(
        "_consumers",
        "if kind is PartitionerKind.BROADCAST:",
        "if False:",
        killer="test_assignment.py::test_records_in_flight_of_other_edges_reach_one_subtask",
    ),
    Mutant(
        "_consumers",
        "if kind is PartitionerKind.CUSTOM:",
        "if False:",
        killer="test_assignment.py::test_records_in_flight_that_nobody_can_own_are_refused",
    ),
    Mutant(
        "_consumers",
        "if old == new:",
        "if False:",
        killer="test_savepoint_checks.py::test_records_in_flight_that_nobody_could_own_are_refused",
    ),
    Mutant(
        "_exact_float",
        "if made != value:",
        "if False:",
        killer="test_value_serializers.py::test_single_values_that_do_not_fit_are_refused",
    ),
    Mutant(
        "_typed_dicts",
        "if field not in defaults and required and not (field in old and old[field][1]):",
        "if False:",
        killer="test_typed_dicts.py::test_other_changes_are_refused_before_any_value",
    ),
    Mutant(
        "check_parallelism",
        "if not 1 <= parallelism <= max_parallelism:",
        "if False:",
        killer="test_key_groups.py::test_ranges_refuse_what_cannot_be",
    ),
    Mutant(
        "conversion",
        "if isinstance(was, _LISTS) and isinstance(now, _LISTS) and was.python_type is now.python_type is list:",
        "if False:",
        killer="test_value_serializers.py::test_changes_that_nothing_converts_are_refused_before_any_value",
    ),
    Mutant(
        "conversion",
        "if was == now:",
        "if False:",
        killer="test_value_serializers.py::test_changes_that_nothing_converts_are_refused_before_any_value",
    ),
    Mutant(
        "decode_metadata",
        "if hashlib.sha256(head + data[_BODY_AT:end]).digest() != stored:",
        "if False:",
        killer="test_metadata.py::test_what_is_wrong_is_said",
    ),
    Mutant(
        "decode_metadata",
        "if version > METADATA_VERSION:",
        "if False:",
        killer="test_metadata.py::test_what_is_wrong_is_said",
    ),
    Mutant(
        "encoded_runs",
        "if len(view) < _HEAD.size or bytes(view[:4]) != MAGIC:",
        "if False:",
        killer="test_key_group_form.py::test_bytes_cut_short_or_joined_are_found",
    ),
    Mutant(
        "encoded_runs",
        "if not complete:",
        "if False:",
        killer="test_key_group_form.py::test_bytes_cut_short_or_joined_are_found",
    ),
    Mutant(
        "end_of",
        'stripped = prefix.rstrip(b"\\xff")',
        "stripped = prefix",
        killer="test_entries.py::test_the_end_of_a_prefix_whose_last_bytes_are_0xff",
    ),
    Mutant(
        "load_contents",
        "if sum(map(len, maps)) != total:",
        "if False:",
        killer="test_map_keys.py::test_keys_that_would_become_one_are_refused",
    ),
    Mutant(
        "max_parallelism_of_savepoint",
        "if first.max_parallelism < vertex.parallelism:",
        "if False:",
        killer="test_assignment.py::test_another_max_parallelism_is_refused_or_adopted",
    ),
    Mutant(
        "max_parallelism_of_savepoint",
        "if first.max_parallelism == vertex.max_parallelism or vertex.max_parallelism_explicit:",
        "if False:",
        killer="test_assignment.py::test_another_max_parallelism_is_refused_or_adopted",
    ),
    Mutant(
        "read_secret",
        "if len(secret) < SHORTEST_SECRET:",
        "if False:",
        killer="test_trust.py::test_the_secret_stays_a_secret",
    ),
    Mutant(
        "read_secret",
        "if mode & 0o077:",
        "if False:",
        killer="test_trust.py::test_the_secret_stays_a_secret",
    ),
    Mutant(
        "verify",
        "if finding.outcome is Outcome.REFUSED:",
        "if False:",
        killer="test_assignment.py::test_a_finished_operator_is_not_fed_by_one_that_runs",
    ),
)
