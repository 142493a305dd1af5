"""StageTable, StageFiles: what a stage reads and leaves, as a pipeline declares it.

Owner: none (frozen values). A declaration with a path is kept when the pipeline ends; one without is temporary. Paths
may name parameters of the pipeline in braces. Must not touch storage.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeAlias

import msgspec

from yarrow.common.pipelines.column_text import Column, columns_of

#: What a parameter can be: it travels with the job, and REST shows it.
ParameterValue: TypeAlias = str | int | float | bool | list[Any] | dict[str, Any] | None

_PLACE: Final = re.compile(r"\{([A-Za-z_][A-Za-z_0-9]*)\}")


class TableFormat(StrEnum):
    """Formats of tables: those of Spark that keep each declared type, and texts."""

    PARQUET = "parquet"
    ORC = "orc"
    JSON = "json"
    CSV = "csv"


class IfExists(StrEnum):
    """What a pipeline does where the path of an output exists before it begins."""

    #: The pipeline is refused before anything starts.
    FAIL = "fail"
    #: What is there is removed when the new output is complete.
    REPLACE = "replace"


class StageData(msgspec.Struct, frozen=True, tag=True, tag_field="data"):
    """What StageTable and StageFiles share."""

    #: The name of the argument with which functions get it: no other one of the pipeline has it.
    name: str

    def __post_init__(self) -> None:
        """Raises ValueError for a name that no argument can have."""
        if not isinstance(self.name, str) or not self.name.isidentifier() or self.name == "spark":
            raise ValueError(
                f"{self.name!r} is no name for data of a pipeline: functions get it as an argument. Use letters, digits"
                " and underscores, and not the word 'spark'"
            )

    def _check_place(self, path: Any, if_exists: Any) -> None:
        if not isinstance(path, str) or "\0" in path:
            raise ValueError(f"data {self.name!r}: a path is a text without a null character, not {path!r}")
        try:
            IfExists(if_exists)
        except ValueError:
            raise ValueError(
                f"data {self.name!r}: if_exists is IfExists.FAIL or IfExists.REPLACE, not {if_exists!r}"
            ) from None


class StageTable(StageData, frozen=True):
    """A table: a stage gets it as a DataFrame, and returns it as one.

    Raises ValueError for columns or a format that cannot be.
    """

    #: Names and types of the columns, as `carrier string, delay bigint`.
    schema: str
    #: A folder that is made with the table, local or hdfs://; "" = the table is temporary.
    path: str = ""
    format: TableFormat = TableFormat.PARQUET
    #: Options of Spark's reader and writer of the format, as `header` of CSV.
    options: dict[str, str] = msgspec.field(default_factory=dict)
    #: Columns by whose values the files lie in folders.
    partition_by: tuple[str, ...] = ()
    if_exists: IfExists = IfExists.FAIL

    def __post_init__(self) -> None:
        """Raises ValueError."""
        super().__post_init__()
        self._check_place(self.path, self.if_exists)
        try:
            TableFormat(self.format)
        except ValueError:
            known = ", ".join(TableFormat)
            raise ValueError(f"table {self.name!r}: no format {self.format!r}; there are: {known}") from None
        if not isinstance(self.options, Mapping) or not all(
            isinstance(text, str) for option in self.options.items() for text in option
        ):
            raise ValueError(
                f"table {self.name!r}: options are a dict of texts, as {{'header': 'true'}}, not {self.options!r}"
            )
        given: Any = self.partition_by
        if not isinstance(given, tuple | list):
            raise ValueError(
                f"table {self.name!r}: partition_by is a tuple of columns, as ('day',), not {given!r}"
            )
        names = [column.name for column in self.columns]
        for column in self.partition_by:
            if column not in names:
                raise ValueError(
                    f"table {self.name!r}: partition_by names {column!r}, which is none of its columns {names}"
                )
        if len(set(self.partition_by)) >= len(names):
            raise ValueError(f"table {self.name!r}: partition_by leaves no column for the files")

    @property
    def columns(self) -> tuple[Column, ...]:
        """The declared columns, in order."""
        if not isinstance(self.schema, str):
            raise ValueError(
                f"table {self.name!r}: its schema is a text, as 'carrier string, delay bigint', not {self.schema!r}"
            )
        try:
            return columns_of(self.schema)
        except ValueError as error:
            raise ValueError(f"table {self.name!r}: {error}") from None

    @property
    def is_table(self) -> bool:
        """Functions get and return it as a DataFrame."""
        return True


class StageFiles(StageData, frozen=True):
    """A folder with any files, or a savepoint: a stage gets its path, and fills the folder of that path itself."""

    #: A folder, local or hdfs://; "" = it is temporary.
    path: str = ""
    if_exists: IfExists = IfExists.FAIL

    def __post_init__(self) -> None:
        """Raises ValueError."""
        super().__post_init__()
        self._check_place(self.path, self.if_exists)

    @property
    def is_table(self) -> bool:
        """Functions get its path."""
        return False


#: Either of them.
AnyData: TypeAlias = StageTable | StageFiles


def parameters_in(path: str) -> tuple[str, ...]:
    """The parameters that a path names."""
    return tuple(_PLACE.findall(path))


def with_parameters(path: str, parameters: Mapping[str, ParameterValue]) -> str:
    """The path with the values of its parameters. KeyError for a parameter without a value."""
    return _PLACE.sub(lambda place: str(parameters[place[1]]), path)
