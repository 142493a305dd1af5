"""Fencing: tokens, epochs, and who may still say what."""

from __future__ import annotations

from bench.mutation.mutant import Mutant

MUTANTS = (
    Mutant(
        "AttachedClients._look",
        "if left > 0:",
        "if False:",
        killer="test_leaderships.py::test_a_job_that_is_to_end_with_its_client_is_cancelled_when_that_is_silent_under_any_leader",
    ),
    Mutant(
        "BlobStore._fetch",
        "if hashlib.sha256(data).hexdigest() != key:",
        "if False:",
        killer="test_dispatcher_parts.py::test_a_damaged_blob_of_a_shared_folder_is_not_taken",
    ),
    Mutant(
        "Dispatcher._check_cancellable",
        "if job_id in self._jobs.recovering or job_id in self._jobs.kept:",
        "if False:",
        killer="test_leaderships.py::test_a_job_that_could_not_be_taken_over_is_given_up_by_a_cancel",
    ),
    Mutant(
        "Dispatcher.fetch_collected",
        "if (master := self._jobs.running.get(job_id)) is not None:",
        "if False:",
        killer="test_leaderships.py::test_rows_of_a_client_do_not_end_with_the_leadership",
    ),
    Mutant(
        "Dispatcher.fetch_collected",
        "if job_id in self._jobs.recovering:",
        "if False:",
        killer="test_leaderships.py::test_rows_of_a_client_do_not_end_with_the_leadership",
    ),
    Mutant(
        "Dispatcher.request_job_status",
        "if (master := self._jobs.running.get(job_id)) is not None:",
        "if False:",
        killer="test_stored_job_leftovers.py::test_a_mark_without_a_job_is_no_job_to_the_next_leader",
    ),
    Mutant(
        "FinishedJobs._expire",
        "ended > limit",
        "ended >= limit",
        killer="test_dispatcher_parts.py::test_finished_jobs_go_by_number_and_by_age",
    ),
    Mutant(
        "FinishedJobs._expire",
        "if ended > limit:",
        "if False:",
        killer="test_dispatcher_parts.py::test_finished_jobs_go_by_number_and_by_age",
    ),
    Mutant(
        "JobGraphStore.get",
        "if len(graph) != stored.size or hashlib.sha256(graph).hexdigest() != stored.sha256:",
        "if False:",
        killer="test_stored_jobs.py::test_a_damaged_graph_is_not_run",
    ),
    Mutant(
        "JobGraphStore.put",
        "if not is_hex_id(job_id):",
        "if False:",
        killer="test_stored_jobs.py::test_no_path_is_taken_for_an_id",
    ),
    Mutant(
        "JobGraphStore.remove_mark_of_nothing",
        "if self.is_stored(job_id):",
        "if False:",
        killer="test_leaderships.py::test_the_end_of_a_cluster_keeps_a_job_that_could_not_be_taken_over",
    ),
    Mutant(
        "JobMasterConnections.check",
        "if present != job_master_id:",
        "if False:",
        killer="test_fencing.py::test_the_resource_manager_refuses_a_stale_token_and_a_stale_job_master",
    ),
    Mutant(
        "JobSlots.job",
        "if job.job_master_id != job_master_id:",
        "if False:",
        killer="test_task_executor.py::test_stale_senders_are_refused",
    ),
    Mutant(
        "JobSlots.request",
        "if epoch_of_token(request.job_master_id) < epoch_of_token(known.job_master_id):",
        "if False:",
        killer="test_task_executor.py::test_a_job_master_of_an_older_epoch_gets_no_slot",
    ),
    Mutant(
        "JobSlots.request",
        "known.job_master_id != request.job_master_id",
        "known.job_master_id == request.job_master_id",
        killer="test_task_executor.py::test_a_job_master_of_an_older_epoch_gets_no_slot",
    ),
    Mutant(
        "Leadership.heard",
        "max(self._heard, sent)",
        "min(self._heard, sent)",
        killer="test_leadership.py::test_a_grant_lasts_while_the_session_is_heard_of",
    ),
    Mutant(
        "Leadership.may_lead",
        "return self.leads and now < self.ends",
        "return self.leads and True",
        killer="test_leadership.py::test_who_slept_does_not_lead_before_it_is_told",
    ),
    Mutant(
        "Leadership.passed",
        "if not self.leads or now < self.ends:",
        "if False:",
        killer="test_leadership.py::test_it_ends_before_the_session_can_have_ended",
    ),
    Mutant(
        "NewestLeader._announced",
        "if epoch < self.epoch:",
        "if False:",
        killer="test_newest_leader.py::test_a_resource_manager_of_an_older_epoch_is_refused",
    ),
    Mutant(
        "NewestLeader._announced",
        "if epoch < self.epoch:",
        "if epoch <= self.epoch:",
        killer="test_newest_leader.py::test_the_same_epoch_is_followed_again_and_told_once",
    ),
    Mutant(
        "NewestLeader._announced",
        "if epoch > self.epoch:",
        "if epoch >= self.epoch:",
        killer="test_newest_leader.py::test_the_same_epoch_is_followed_again_and_told_once",
    ),
    Mutant(
        "Outage.failed",
        "if now < self._next:",
        "if False:",
        killer="test_outage.py::test_an_hour_away_is_a_handful_of_sentences",
    ),
    Mutant(
        "Outage.failed",
        "min(2 * self._interval, LONGEST_INTERVAL)",
        "max(2 * self._interval, LONGEST_INTERVAL)",
        killer="test_outage.py::test_an_hour_away_is_a_handful_of_sentences",
    ),
    Mutant(
        "Receiver._check_token",
        "if expected is not None and token != expected:",
        "if False:",
        killer="test_transports.py::test_a_stale_token_is_refused_before_the_method_runs",
    ),
    Mutant(
        "Receiver._check_token",
        "token != expected",
        "token == expected",
        killer="test_transports.py::test_a_stale_token_is_refused_before_the_method_runs",
    ),
    Mutant(
        "RecordsInMemory.write",
        "if epoch != self._epoch:",
        "if False:",
        killer="test_stored_jobs.py::test_records_are_written_by_the_newest_leadership_alone",
    ),
    Mutant(
        "RefusedJobs._try",
        "if self._left.get(job_id) is not lock:",
        "if False:",
        killer="test_stored_job_leftovers.py::test_a_refused_job_that_is_submitted_again_is_not_removed",
    ),
    Mutant(
        "TaskExecutor._check_resource_manager",
        "if leader is None or leader.leader_id != resource_manager_id:",
        "if leader is None:",
        killer="test_task_executor.py::test_stale_senders_are_refused",
    ),
    Mutant(
        "TaskExecutor._check_resource_manager",
        "leader.leader_id != resource_manager_id",
        "leader.leader_id == resource_manager_id",
        killer="test_task_executor.py::test_without_the_folder_of_its_workers_it_wants_to_end",
    ),
    Mutant(
        "TaskExecutor.disconnect_job_master",
        "job.job_master_id == job_master_id",
        "job.job_master_id != job_master_id",
        killer="test_task_executor.py::test_stale_senders_are_refused",
    ),
    Mutant(
        "TaskExecutor.request_slot",
        "request.slot_id.resource_id != self.resource_id",
        "request.slot_id.resource_id == self.resource_id",
        killer="test_task_executor.py::test_without_the_folder_of_its_workers_it_wants_to_end",
    ),
    Mutant(
        "_check_edge",
        "if source is None or target is None:",
        "if False:",
        killer="test_dispatcher_parts.py::test_bad_graphs_are_refused_in_words",
    ),
    Mutant(
        "_check_parallelism",
        "if vertex.parallelism < 1:",
        "if False:",
        killer="test_dispatcher_parts.py::test_bad_graphs_are_refused_in_words",
    ),
    Mutant(
        "decode_and_validate",
        "if version != JOB_GRAPH_VERSION:",
        "if False:",
        killer="test_dispatcher_parts.py::test_bad_graphs_are_refused_in_words",
    ),
    Mutant(
        "validate",
        "if not is_hex_id(graph.job_id):",
        "if False:",
        killer="test_dispatcher_parts.py::test_bad_graphs_are_refused_in_words",
    ),
    Mutant(
        "validate",
        "if vertex.id in vertices:",
        "if False:",
        killer="test_dispatcher_parts.py::test_bad_graphs_are_refused_in_words",
    ),
)
