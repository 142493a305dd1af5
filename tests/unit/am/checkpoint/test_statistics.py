"""What is told of a checkpoint: each vertex of the job from its begin on, as Flink's page reads it."""

from __future__ import annotations

from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.checkpoint.simulation import Simulation


def parts_of(simulation: Simulation, checkpoint_id: int = 1) -> list[tuple[str, int, int]]:
    """Vertex, subtasks and those that have acknowledged, in the order of the job."""
    record = simulation.coordinator.statistics.record(checkpoint_id)
    assert record is not None
    return [
        (vertex.name, vertex.num_subtasks, vertex.num_acknowledged_subtasks) for vertex in record.vertices
    ]


def test_each_vertex_is_told_before_it_is_known_who_takes_part() -> None:
    simulation = Simulation()
    simulation.after(10)
    assert parts_of(simulation) == [("vertex 0", 2, 0), ("vertex 1", 1, 0)]
    simulation.located(1)
    simulation.acknowledge(1, 1)
    assert parts_of(simulation) == [("vertex 0", 2, 1), ("vertex 1", 1, 0)]


def test_each_vertex_is_told_of_one_that_was_aborted_before_it_came_to_its_tasks() -> None:
    simulation = Simulation()
    simulation.after(10)
    simulation.tasks.trouble = "the job is RESTARTING"
    simulation.located(1)
    record = simulation.coordinator.statistics.record(1)
    assert record is not None and "RESTARTING" in record.failure_message
    assert parts_of(simulation) == [("vertex 0", 2, 0), ("vertex 1", 1, 0)]


def test_subtasks_that_had_ended_count_as_acknowledged() -> None:
    simulation = Simulation()
    first, second = simulation.tasks.job.vertices
    simulation.tasks.attempts.pop()
    simulation.tasks.finished = {first.id: (1,), second.id: (0,)}
    simulation.after(10)
    simulation.located(1)
    assert parts_of(simulation) == [("vertex 0", 2, 1), ("vertex 1", 1, 1)]
    record = simulation.coordinator.statistics.record(1)
    assert record is not None
    assert [[part.index for part in vertex.parts] for vertex in record.vertices] == [[1], [0]]
    assert record.checkpointed_size == record.state_size == 0
    simulation.acknowledge(1, 0)
    simulation.stored(1)
    assert parts_of(simulation) == [("vertex 0", 2, 2), ("vertex 1", 1, 1)]


def test_a_rescaled_job_has_its_present_parallelisms() -> None:
    simulation = Simulation()
    simulation.tasks.job = linear_job(Stage(3), Stage(2))
    simulation.after(10)
    assert parts_of(simulation) == [("vertex 0", 3, 0), ("vertex 1", 2, 0)]
