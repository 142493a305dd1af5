"""IterationProgress: the superstep of each iteration, of the latest run."""

from __future__ import annotations

from tests.support.batch_runner import collecting_graph
from tests.support.looping_programs import Program
from yarrow.am.jobmaster.batch.iteration_progress import IterationProgress
from yarrow.am.rest.models.jobs import IterationInfo
from yarrow.runtime.graph.job_graph import decode_job_graph, encode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import BatchStageProgress


def test_the_superstep_is_that_of_the_latest_run() -> None:
    program = Program()
    loop = program.begin(program.rows([1]), most=7, name="grow")
    (result,) = loop.close([program.stream(loop.inputs[0]).map(lambda number: number + 1).transformation])
    graph = decode_job_graph(encode_job_graph(collecting_graph(program.env, program.stream(result))))
    progress = IterationProgress(graph)
    (iteration,) = progress.all
    (body,) = iteration.vertices
    assert (iteration.name, iteration.superstep, iteration.max_supersteps) == ("grow", 0, 7)

    def told(superstep: int) -> BatchStageProgress:
        state = ExecutionState.RUNNING
        return BatchStageProgress(
            vertex_id=body, state=state, tasks_total=2, tasks_running=1, tasks_done=0, superstep=superstep
        )

    progress.note(0, [told(1)])
    progress.note(0, [told(5)])
    assert progress.all[0].superstep == 5
    progress.note(1, [told(2)])
    progress.note(0, [told(6)])
    shown = IterationInfo.model_validate(progress.all[0], from_attributes=True).model_dump(by_alias=True)
    assert shown == {"name": "grow", "superstep": 2, "max-supersteps": 7, "vertices": [body]}
