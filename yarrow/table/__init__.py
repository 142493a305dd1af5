"""The Table API's vocabulary: the types of columns. Tables and SQL are not part of this version.

Owner: none. Values only; nothing here builds or executes anything.
"""

from yarrow.common.types import Row, RowKind
from yarrow.table.types import DataTypes, UserDefinedType

__all__ = ["DataTypes", "Row", "RowKind", "UserDefinedType"]
