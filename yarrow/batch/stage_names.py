"""The declarations of a pipeline under the names of this package; they are values of the vocabulary.

Owner: none.
"""

from __future__ import annotations

from yarrow.common.pipelines.stage import PipelineFunction
from yarrow.common.pipelines.stage_data import IfExists, StageFiles, StageTable, TableFormat

__all__ = ["IfExists", "PipelineFunction", "StageFiles", "StageTable", "TableFormat"]
