"""Bounded work on Spark: pipelines of stages, their schedules, and what streams take of their results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from yarrow.runtime.common.public_names import loading

if TYPE_CHECKING:
    from yarrow.batch.file_intake import FileIntake
    from yarrow.batch.lookup_table import LookupTable
    from yarrow.batch.lookup_version import LookupTableError
    from yarrow.batch.pipeline import Pipeline
    from yarrow.batch.pipeline_graph import PipelineError
    from yarrow.batch.schedule_names import InvalidScheduleError, Schedule
    from yarrow.batch.stage_names import IfExists, PipelineFunction, StageFiles, StageTable, TableFormat
    from yarrow.batch.stage_results import read_result
    from yarrow.batch.take_files import take_files_once

__all__ = [
    "FileIntake",
    "IfExists",
    "InvalidScheduleError",
    "LookupTable",
    "LookupTableError",
    "Pipeline",
    "PipelineError",
    "PipelineFunction",
    "Schedule",
    "StageFiles",
    "StageTable",
    "TableFormat",
    "read_result",
    "take_files_once",
]

#: The module of each name: what a program does not use, it does not load.
_MODULES: Final = {
    "Pipeline": "pipeline",
    "PipelineError": "pipeline_graph",
    "IfExists": "stage_names",
    "StageFiles": "stage_names",
    "PipelineFunction": "stage_names",
    "StageTable": "stage_names",
    "TableFormat": "stage_names",
    "FileIntake": "file_intake",
    "LookupTable": "lookup_table",
    "LookupTableError": "lookup_version",
    "InvalidScheduleError": "schedule_names",
    "Schedule": "schedule_names",
    "read_result": "stage_results",
    "take_files_once": "take_files",
}

__getattr__ = loading(__name__, _MODULES)
