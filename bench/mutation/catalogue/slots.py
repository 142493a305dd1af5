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
        "Slot.enter",
        "if state not in SLOT_TRANSITIONS[self.state]:",
        "if False:",
        killer="test_state_machines.py::test_a_slot_follows_its_table_and_nothing_else",
    ),
    Mutant(
        "SlotManager._match",
        "if not lacking or not self._requests.may_ask_for_jobs(now):",
        "if False:",
        killer="test_requirement_check_delay.py::test_nothing_is_asked_for_before_the_delay",
    ),
    Mutant(
        "SlotPool.allocations_of",
        "slot.resource_id == resource_id",
        "slot.resource_id != resource_id",
        killer="test_slot_pool.py::test_lost_slots_are_named_and_forgotten",
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
        "if slot is None or slot.state is SlotState.RELEASING:",
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
        "SlotsForRescale.fail",
        "if not self._is_awaited:",
        "if False:",
        killer="test_job_scheduler.py::test_cancel_before_any_slot_came",
    ),
    Mutant(
        "TaskExecutorRequests._surplus",
        "if now - self._surplus_since < _SURPLUS_PATIENCE:",
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
)
