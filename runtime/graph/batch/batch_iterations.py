"""The iterations of a bounded job: which vertices each one repeats, and what goes round. Pure.

Owner: any thread. The body of an iteration is all that its inputs reach before its results. Must not look into user
code.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from yarrow.runtime.common.ids import JobVertexID, OperatorID
from yarrow.runtime.graph.job_graph import JobGraph, JobVertex, OperatorDescriptor
from yarrow.runtime.graph.operator_spec import IterationControl, IterationPlace, IterationRole


class IterationVariable(msgspec.Struct, frozen=True, kw_only=True):
    """A data set that goes round: its rows enter by one edge and leave by another one."""

    #: Edges from outside to the input, and the one from the output to the result.
    input_edges: tuple[int, ...]
    output_edge: int
    #: The vertices that read the first one, and write the second one.
    input: JobVertexID
    output: JobVertexID
    #: The operator that counts its rows.
    output_operator: OperatorID


class BatchIteration(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a plan that is executed once a superstep."""

    id: str
    control: IterationControl
    variables: tuple[IterationVariable, ...]
    #: The vertices of the body, upstream first.
    body: tuple[JobVertexID, ...]
    #: The operator without whose rows a superstep is the last one; None = the program has no such criterion.
    criterion: OperatorID | None = None

    @property
    def results(self) -> tuple[int, ...]:
        """The edges by which rows leave the body."""
        return tuple(variable.output_edge for variable in self.variables)

    @property
    def counted(self) -> OperatorID | None:
        """The operator without whose rows a superstep is the last one, as criterion or by its own rule."""
        if self.criterion is not None:
            return self.criterion
        return self.variables[0].output_operator if self.control.ends_when_empty else None


def iterations_of(graph: JobGraph) -> tuple[BatchIteration, ...]:
    """The iterations of a job, in order of their first inputs."""
    controls = {
        place.iteration: place.control
        for _, _, place in _places(graph)
        if place.role is IterationRole.INPUT and place.control is not None
    }
    return tuple(_iteration(graph, name, control) for name, control in controls.items())


def borders_of(vertex: JobVertex) -> Iterator[tuple[OperatorDescriptor, IterationPlace]]:
    """The operators of a vertex that stand at the border of an iteration."""
    for operator in vertex.operators:
        place = operator.spec.iteration_place
        if place is not None:
            yield operator, place


def _places(graph: JobGraph) -> Iterator[tuple[JobVertex, OperatorDescriptor, IterationPlace]]:
    for vertex in graph.vertices:
        for operator, place in borders_of(vertex):
            yield vertex, operator, place


def _iteration(graph: JobGraph, name: str, control: IterationControl) -> BatchIteration:
    inputs: dict[int, JobVertex] = {}
    outputs: dict[int, tuple[JobVertex, OperatorDescriptor]] = {}
    results: dict[int, JobVertex] = {}
    criterion = None
    for vertex, operator, place in _places(graph):
        if place.iteration != name:
            continue
        if place.role is IterationRole.INPUT:
            inputs[place.variable] = vertex
        elif place.role is IterationRole.OUTPUT:
            outputs[place.variable] = (vertex, operator)
        elif place.role is IterationRole.RESULT:
            results[place.variable] = vertex
        else:
            criterion = operator.id
    body = body_of(graph, name)
    return BatchIteration(
        id=name,
        control=control,
        variables=tuple(
            IterationVariable(
                input_edges=tuple(edge.index for edge in graph.inputs_of(inputs[number].id)),
                output_edge=graph.inputs_of(results[number].id)[0].index,
                input=inputs[number].id,
                output=outputs[number][0].id,
                output_operator=outputs[number][1].id,
            )
            for number in sorted(inputs)
        ),
        body=tuple(vertex.id for vertex in graph.vertices if vertex.id in body),
        criterion=criterion,
    )


def body_of(graph: JobGraph, iteration: str) -> Mapping[JobVertexID, None]:
    """The vertices that an iteration's inputs reach before its results, upstream first."""
    found: dict[JobVertexID, None] = {}
    for vertex in graph.vertices:
        places = [place for _, place in borders_of(vertex) if place.iteration == iteration]
        begins = any(place.role is IterationRole.INPUT for place in places)
        ends = any(place.role is IterationRole.RESULT for place in places)
        if not ends and (begins or any(edge.source in found for edge in graph.inputs_of(vertex.id))):
            found[vertex.id] = None
    return found
