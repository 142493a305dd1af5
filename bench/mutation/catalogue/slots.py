"""Slots: who gets them, who loses them, and how long they wait."""

from __future__ import annotations

from bench.mutation.mutant import Mutant

MUTANTS = (
    Mutant(
        "AvoidedSlots._note",
        "min(max(AVOIDED_FIRST, 2 * record.avoided_for), AVOIDED_MOST)",
        "max(max(AVOIDED_FIRST, 2 * record.avoided_for), AVOIDED_MOST)",
        killer="test_spares_and_avoided_slots.py::test_avoidance_grows_and_decays",
    ),
    Mutant(
        "AvoidedSlots.forget",
        "place == resource_id",
        "place != resource_id",
        killer="test_spares_and_avoided_slots.py::test_avoidance_grows_and_decays",
    ),
    Mutant(
        "Backoff.next_seconds",
        "min(self._factor * seconds, self._last_seconds)",
        "max(self._factor * seconds, self._last_seconds)",
        killer="test_backoff.py::test_pauses_double_up_to_the_last_and_begin_anew",
    ),
    Mutant(
        "ExponentialDelayBackoff.failed",
        "min(pause + offset, settings.maximum)",
        "max(pause + offset, settings.maximum)",
        killer="test_restart_strategies.py::test_exponential_delay_gives_up_after_its_attempts_unless_it_began_anew",
    ),
    Mutant(
        "ExponentialDelayBackoff.may_restart",
        "self._attempts <= self._settings.attempts",
        "self._attempts < self._settings.attempts",
        killer="test_restart_strategies.py::test_exponential_delay_gives_up_after_its_attempts_unless_it_began_anew",
    ),
    Mutant(
        "FixedDelayBackoff.may_restart",
        "self._failures <= self._settings.attempts",
        "self._failures < self._settings.attempts",
        killer="test_restart_strategies.py::test_fixed_delay_restarts_so_often_in_all",
    ),
    Mutant(
        "Slot.enter",
        "if state not in SLOT_TRANSITIONS[self.state]:",
        "if False:",
        killer="test_state_machines.py::test_a_slot_follows_its_table_and_nothing_else",
    ),
    Mutant(
        "SlotHolds.let_go",
        "if subtask not in self._subtasks:",
        "if False:",
        killer="test_job_scheduler.py::test_counts_agree_and_an_ended_job_stays_ended",
    ),
    Mutant(
        "SlotHolds.let_go",
        "self._readers[vertex.id] == 0",
        "self._readers[vertex.id] != 0",
        killer="test_job_scheduler.py::test_the_slot_of_a_source_coordinator_outlives_its_first_reader",
    ),
    Mutant(
        "SlotManager._freed",
        "slot.allocation_id == event.allocation_id",
        "slot.allocation_id != event.allocation_id",
        killer="test_spares_and_avoided_slots.py::test_an_allocation_of_an_unknown_job_is_nobodys_failure",
    ),
    Mutant(
        "SlotManager._match",
        "if not lacking or not self._requests.may_ask_for_jobs(now):",
        "if False:",
        killer="test_requirement_check_delay.py::test_nothing_is_asked_for_before_the_delay",
    ),
    Mutant(
        "SlotManager._note_end",
        "if job is None or slot.state is not SlotState.ALLOCATED:",
        "if False:",
        killer="test_spares_and_avoided_slots.py::test_an_allocation_of_an_unknown_job_is_nobodys_failure",
    ),
    Mutant(
        "SlotMatching.choose",
        "if fits(free[position].profile, profile):",
        "if False:",
        killer="test_slot_manager.py::test_random_placement_reaches_every_task_executor",
    ),
    Mutant(
        "SlotPool.allocations_of",
        "slot.resource_id == resource_id",
        "slot.resource_id != resource_id",
        killer="test_slot_pool.py::test_lost_slots_are_named_and_forgotten",
    ),
    Mutant(
        "SlotPool.required",
        "max(len(self._held) + len(self._waiting), self._at_least)",
        "min(len(self._held) + len(self._waiting), self._at_least)",
        killer="test_slot_pool.py::test_offers_are_taken_in_the_order_of_need_and_no_more_than_needed",
    ),
    Mutant(
        "SlotPool.take_idle",
        "now - slot.idle_since >= self._idle_timeout",
        "now - slot.idle_since > self._idle_timeout",
        killer="test_slot_pool.py::test_a_released_slot_is_idle_used_again_or_given_back_late",
    ),
    Mutant(
        "SlotTable.allocate",
        "if not 0 <= index < len(self._slots):",
        "if False:",
        killer="test_slot_table.py::test_a_taken_slot_is_refused_by_name",
    ),
    Mutant(
        "SlotTable.allocate",
        "if slot.owner == owner and slot.state is not TaskExecutorSlotState.RELEASING:",
        "if False:",
        killer="test_slot_table.py::test_life_of_a_slot",
    ),
    Mutant(
        "SlotTable.allocate",
        "slot.owner == owner",
        "slot.owner != owner",
        killer="test_slot_table.py::test_a_taken_slot_is_refused_by_name",
    ),
    Mutant(
        "SlotTable.of_job",
        "slot.owner.job_id == job_id",
        "slot.owner.job_id != job_id",
        killer="test_slot_table.py::test_a_slot_missing_in_two_reports_is_surplus",
    ),
    Mutant(
        "SlotTable.release",
        "if slot is None or slot.state is TaskExecutorSlotState.RELEASING:",
        "if False:",
        killer="test_slot_table.py::test_an_unknown_allocation_is_refused_by_name",
    ),
    Mutant(
        "SlotTasks._slots_of",
        "slot.owner.job_id == deployment.job_id",
        "slot.owner.job_id != deployment.job_id",
        killer="test_task_executor.py::test_what_tasks_restore_is_fetched_where_it_is_too_long_for_the_message",
    ),
    Mutant(
        "SlotTasks.deliver",
        "max(event.target_subtask, 0)",
        "min(event.target_subtask, 0)",
        killer="test_task_executor.py::test_operator_events_reach_the_worker_and_come_back",
    ),
    Mutant(
        "PendingRescale.fail_slots",
        "if not self._slots_awaited:",
        "if False:",
        killer="test_job_scheduler.py::test_cancel_before_any_slot_came",
    ),
    Mutant(
        "TaskExecutorRequests._idle",
        "elif self._executors.slots_total - len(executor.slots) < self._settings.min_slots:",
        "elif False:",
        killer="test_task_executor_requests.py::test_idle_ones_go_when_their_time_is_over_but_for_the_minimum",
    ),
    Mutant(
        "TaskExecutorRequests._needed",
        "max(needed, -(-(settings.min_slots - self._executors.slots_total) // per_executor))",
        "min(needed, -(-(settings.min_slots - self._executors.slots_total) // per_executor))",
        killer="test_spares_and_avoided_slots.py::test_what_spares_and_the_minimum_need_is_not_given_up",
    ),
    Mutant(
        "TaskExecutorRequests._surplus",
        "if now - self._surplus_since < _SURPLUS_PATIENCE:",
        "if False:",
        killer="test_spares_and_avoided_slots.py::test_what_spares_and_the_minimum_need_is_not_given_up",
    ),
    Mutant(
        "TaskExecutorRequests._surplus",
        "if surplus <= 0:",
        "if False:",
        killer="test_spares_and_avoided_slots.py::test_what_spares_and_the_minimum_need_is_not_given_up",
    ),
    Mutant(
        "TaskExecutorTracker._set_allocated",
        "slot.allocation_id != allocation_id",
        "slot.allocation_id == allocation_id",
        killer="test_spares_and_avoided_slots.py::test_an_allocation_of_an_unknown_job_is_nobodys_failure",
    ),
    Mutant(
        "TaskExecutorTracker.refused",
        "slot.allocation_id != request.allocation_id",
        "slot.allocation_id == request.allocation_id",
        killer="test_slot_manager.py::test_a_refused_request_waits_for_the_truth",
    ),
    Mutant(
        "fits",
        "return enough(slot.cpu_cores, wanted.cpu_cores) and",
        "return True and",
        killer="test_slot_manager.py::test_a_slot_fits_by_cores_and_by_memory",
    ),
    Mutant(
        "restart_backoff_factory",
        "if kind in (RestartStrategy.FAILURE_RATE, RestartStrategy.FAILURERATE):",
        "if False:",
        killer="test_restart_strategies.py::test_the_configuration_names_the_strategy",
    ),
    Mutant(
        "restart_backoff_factory",
        "if kind in (RestartStrategy.NONE, RestartStrategy.OFF, RestartStrategy.DISABLE):",
        "if False:",
        killer="test_restart_strategies.py::test_the_configuration_names_the_strategy",
    ),
    Mutant(
        "HostedSparkDrivers.start",
        "if slot.allocation_id in self._ended:",
        "if False:",
        killer="test_hosted_spark_drivers.py::test_a_repeated_request_starts_one_process_and_a_late_one_none",
    ),
    Mutant(
        "SlotTable.allocate",
        "if slot.owner is not None or allocation_id in self._by_allocation:",
        "if False:",
        killer="test_slot_table.py::test_a_taken_slot_is_refused_by_name",
    ),
    Mutant(
        "SlotTable.get",
        "if slot is None:",
        "if False:",
        killer="test_slot_table.py::test_an_unknown_allocation_is_refused_by_name",
    ),
)
