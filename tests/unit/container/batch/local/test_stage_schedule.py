"""Which tasks of a plan can run, and what they read."""

from __future__ import annotations

from tests.unit.runtime.graph.programs import environment
from yarrow.container.batch.local.stage_schedule import StageSchedule, StageTask
from yarrow.runtime.graph.batch.batch_plan import BatchPlan
from yarrow.runtime.graph.batch.batch_planner import plan


def two_sources() -> BatchPlan:
    """Two sources with a map each (forward), united behind a shuffle."""
    env = environment(2, {"execution.runtime-mode": "BATCH"})
    env.disable_operator_chaining()
    one, other = (env.from_sequence(1, 9).map(lambda x: x) for _ in range(2))
    one.union(other).key_by(lambda x: x % 2).reduce(lambda a, b: a + b).print()
    return plan(env.get_job_graph())


def test_upstream_first_and_nothing_before_its_input() -> None:
    found = two_sources()
    schedule = StageSchedule(found)
    order: list[StageTask] = []
    running: list[StageTask] = []
    while len(order) < sum(stage.parallelism for stage in found.stages):
        while (task := schedule.next_task()) is not None:
            assert all(each in order for each in schedule.inputs_of(task))
            running.append(task)
        assert running, "some task can run"
        # The one that began last ends first.
        order.append(running.pop())
        schedule.has_finished(order[-1])
    assert schedule.next_task() is None
    assert schedule.finished == sorted(order) and len(set(order)) == len(order)


def test_a_forward_exchange_needs_one_task_and_a_shuffle_all() -> None:
    found = two_sources()
    schedule = StageSchedule(found)
    names = [stage.name for stage in found.stages]
    sources = [at for at, name in enumerate(names) if "Source" in name]
    maps = [at for at, name in enumerate(names) if name == "Map"]
    (reduce_,) = (at for at, name in enumerate(names) if "Reduce" in name)
    assert schedule.inputs_of(StageTask(sources[0], 1)) == []
    assert {schedule.inputs_of(StageTask(at, 1))[0].subtask for at in maps} == {1}
    assert all(len(schedule.inputs_of(StageTask(at, 1))) == 1 for at in maps)
    assert schedule.inputs_of(StageTask(reduce_, 0)) == [
        StageTask(at, subtask) for at in maps for subtask in range(2)
    ]
    first = schedule.next_task()
    assert first is not None
    schedule.has_finished(first)
    # The first subtask of its map can run, though the second one of the source has not.
    ready = [task for task in iter(schedule.next_task, None) if task.stage in maps]
    assert [task.subtask for task in ready] == [first.subtask]
