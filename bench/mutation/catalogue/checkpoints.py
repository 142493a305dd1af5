"""Checkpoints: what they wait for, what they leave out, and what becomes of those that fail."""

from __future__ import annotations

from bench.mutation.mutant import Mutant

MUTANTS = (
    Mutant(
        "AligningBarrierHandler._completed",
        "if checkpoint_id not in self._pending or (left and not self._overtakes(alignment, left)):",
        "if False:",
        killer="test_input_gate.py::test_an_ended_channel_counts_as_arrived",
    ),
    Mutant(
        "AligningBarrierHandler._completed",
        "max(self._latest, checkpoint_id)",
        "min(self._latest, checkpoint_id)",
        killer="test_barrier_handler.py::test_a_trigger_waits_for_the_end_of_what_is_queued",
    ),
    Mutant(
        "AligningBarrierHandler._is_over",
        "checkpoint_id <= self._latest",
        "checkpoint_id < self._latest",
        killer="test_barrier_handler.py::test_a_trigger_waits_for_the_end_of_what_is_queued",
    ),
    Mutant(
        "AligningBarrierHandler.barrier",
        "a.barrier.checkpoint_id < barrier.checkpoint_id",
        "a.barrier.checkpoint_id <= barrier.checkpoint_id",
        killer="test_input_gate.py::test_a_later_barrier_supersedes_and_an_earlier_one_is_dropped",
    ),
    Mutant(
        "AssignmentLog.completed",
        "number <= checkpoint_id",
        "number < checkpoint_id",
        killer="test_source_events.py::test_a_completed_checkpoint_lets_go_of_what_its_readers_hold",
    ),
    Mutant(
        "AssignmentLog.completed",
        "reader.events[0].number <= covered",
        "reader.events[0].number < covered",
        killer="test_source_events.py::test_a_completed_checkpoint_lets_go_of_what_its_readers_hold",
    ),
    Mutant(
        "AssignmentLog.confirmed",
        "max(reader.confirmed, number)",
        "min(reader.confirmed, number)",
        killer="test_source_events.py::test_a_snapshot_holds_what_a_reader_may_not_have_taken",
    ),
    Mutant(
        "ChannelRecording._is_ended_by",
        "barrier_id(rest) == self.checkpoint_id",
        "barrier_id(rest) != self.checkpoint_id",
        killer="test_unaligned_barriers.py::test_each_row_before_a_barrier_is_in_state_or_in_flight",
    ),
    Mutant(
        "ChannelRecording._is_ended_by",
        "if isinstance(head, CheckpointBarrier):",
        "if False:",
        killer="test_unaligned_barriers.py::test_each_row_before_a_barrier_is_in_state_or_in_flight",
    ),
    Mutant(
        "CheckpointCoordinator._is_subsumed",
        "pending.checkpoint_id < completed.checkpoint_id and not pending.kind.is_savepoint",
        "pending.checkpoint_id < completed.checkpoint_id",
        killer="test_coordinator.py::test_a_later_checkpoint_that_completes_leaves_a_savepoint_under_way",
    ),
    Mutant(
        "CheckpointCoordinator._task_acknowledged",
        "if pending.state is not CheckpointState.TASKS or message.attempt_id not in pending.missing_tasks:",
        "if False:",
        killer="test_coordinator.py::test_nothing_is_acknowledged_to_another_phase",
    ),
    Mutant(
        "CheckpointFailureManager.failed",
        "if self._count <= self._tolerable:",
        "if False:",
        killer="test_request_decider.py::test_a_job_survives_as_many_failures_in_a_row_as_are_tolerated",
    ),
    Mutant(
        "CheckpointRequestDecider._take_request",
        "if request.kind.is_savepoint or self._has_room():",
        "if False:",
        killer="test_request_decider.py::test_what_is_asked_for_again_comes_first_but_not_for_ever",
    ),
    Mutant(
        "CheckpointRequestDecider.decide",
        "if self._may_be_due() and self._periodic_time() <= now:",
        "if False:",
        killer="test_request_decider.py::test_the_last_checkpoint_of_the_same_tasks_is_taken_at_once_and_once",
    ),
    Mutant(
        "CheckpointRequestDecider.request_again",
        "if request.tries >= _TRIES:",
        "if False:",
        killer="test_request_decider.py::test_what_is_asked_for_again_comes_first_but_not_for_ever",
    ),
    Mutant(
        "CompletedCheckpointStore.add",
        "self._checkpoints.sort(key=lambda kept: kept.checkpoint_id)",
        "pass",
        killer="test_completed.py::test_completed_ones_stay_in_order_of_their_ids",
    ),
    Mutant(
        "InFlightRecorder.begin",
        "if not overtakes(ready.barrier):",
        "if False:",
        killer="test_stream_task.py::test_cancel_and_barrier_at_the_source_wait_for_a_row_or_two",
    ),
    Mutant(
        "InMemoryRecoveryStore._guarded",
        "if records.epoch > self._epoch:",
        "if False:",
        killer="test_recovery_store.py::test_a_former_leadership_writes_nothing_any_more",
    ),
    Mutant(
        "InMemoryRecoveryStore._guarded",
        "records.epoch > self._epoch",
        "records.epoch >= self._epoch",
        killer="test_recovery_store.py::test_ids_rise_over_leaderships",
    ),
    Mutant(
        "InMemoryRecoveryStore.add",
        "if former.path != path:",
        "if False:",
        killer="test_recovery_store.py::test_pointers_are_in_the_order_of_ids_and_never_changed",
    ),
    Mutant(
        "InMemoryRecoveryStore.use_checkpoint_id",
        "checkpoint_id <= records.highest_id",
        "checkpoint_id < records.highest_id",
        killer="test_recovery_store.py::test_ids_rise_over_leaderships",
    ),
    Mutant(
        "JobStorages.use",
        "if name is None or not is_custom(name) or job_id in self._own:",
        "if False:",
        killer="test_time_in_workers.py::test_a_source_function_that_gives_no_timestamp_is_named",
    ),
    Mutant(
        "PendingCheckpoint.partly_ended_union",
        "and _has_union(state)",
        "and False",
        killer="test_coordinator.py::test_a_union_list_of_a_partly_ended_operator_fails_the_checkpoint",
    ),
    Mutant(
        "ReaderInbox.cut",
        "max(self._cut, checkpoint_id)",
        "min(self._cut, checkpoint_id)",
        killer="test_source_events.py::test_an_event_sent_behind_a_snapshot_waits_for_the_readers_cut",
    ),
    Mutant(
        "ReaderInbox.receive",
        "number == UNNUMBERED",
        "number != UNNUMBERED",
        killer="test_source_events.py::test_an_event_sent_behind_a_snapshot_waits_for_the_readers_cut",
    ),
    Mutant(
        "RecordedRecoveryStore.add",
        "if former.path != path:",
        "if False:",
        killer="test_stored_jobs.py::test_pointers_outlive_a_leadership_and_are_fenced",
    ),
    Mutant(
        "RecordedRecoveryStore.use_checkpoint_id",
        "max(stored, self._spent)",
        "min(stored, self._spent)",
        killer="test_stored_jobs.py::test_an_id_whose_write_got_lost_is_spent",
    ),
    Mutant(
        "_emitted_schema",
        "return spec.emitted_schema",
        "return None",
        killer="test_broken_wire.py::test_columns_that_are_not_the_declared_ones_fail_the_task_that_takes_them",
    ),
    Mutant(
        "_restored",
        "if settings.claim_mode is execution.ClaimMode.LEGACY:",
        "if False:",
        killer="test_restore.py::test_legacy_is_refused_with_a_remedy",
    ),
    Mutant(
        "_storage",
        "if settings.storage is StorageKind.JOB_MANAGER:",
        "if False:",
        killer="test_restore.py::test_no_path_is_used_unchecked",
    ),
    Mutant(
        "checked_path",
        'if "://" not in path and not path.startswith("/"):',
        "if False:",
        killer="test_restore.py::test_no_path_is_used_unchecked",
    ),
    Mutant(
        "load_state",
        "if not isinstance(decoded, list) or not decoded or decoded[0] != _VERSION:",
        "if False:",
        killer="test_source_events.py::test_state_of_another_version_is_refused",
    ),
    Mutant(
        "outlives",
        "if retention is ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION:",
        "if False:",
        killer="test_completed.py::test_what_outlives_its_job",
    ),
    Mutant(
        "untaken_splits",
        "number > taken[subtask]",
        "number >= taken[subtask]",
        killer="test_source_events.py::test_splits_that_no_reader_has_taken_are_left_over",
    ),
)
