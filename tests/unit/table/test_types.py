"""DataTypes: equality, text, limits, and what user-defined types convert."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from yarrow.table import DataTypes, UserDefinedType
from yarrow.table.types import DataType, DecimalType, RowType


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (DataTypes.DECIMAL(10, 2), "DECIMAL(10, 2)"),
        (DataTypes.BIGINT().not_null(), "BIGINT NOT NULL"),
        (DataTypes.INT(nullable=False).nullable(), "INT"),
        (DataTypes.CHAR(3), "CHAR(3)"),
        (DataTypes.TIMESTAMP(), "TIMESTAMP(6)"),
        (DataTypes.TIME(), "TIME(0)"),
        (DataTypes.TIMESTAMP_WITH_LOCAL_TIME_ZONE(3), "TIMESTAMP_LTZ(3)"),
        (DataTypes.ARRAY(DataTypes.DATE().not_null()), "ARRAY(DATE NOT NULL)"),
        (DataTypes.MAP(DataTypes.CHAR(1), DataTypes.DOUBLE()), "MAP(CHAR(1), DOUBLE)"),
        (DataTypes.ROW([DataTypes.FIELD("n", DataTypes.TINYINT())]), "ROW(n TINYINT)"),
        (DataTypes.INTERVAL(DataTypes.DAY(3), DataTypes.SECOND(0)), "INTERVAL(DAY(3) TO SECOND(0))"),
        (DataTypes.INTERVAL(DataTypes.MONTH()), "INTERVAL(MONTH)"),
    ],
)
def test_a_type_is_what_its_parameters_are(made: DataType, text: str) -> None:
    travelled = pickle.loads(pickle.dumps(made))
    assert str(made) == text
    assert travelled == made
    assert hash(travelled) == hash(made)
    assert (made.not_null() == made) is not made.is_nullable


def test_types_differ_by_kind_and_parameters() -> None:
    assert DataTypes.DECIMAL(10, 2) != DataTypes.DECIMAL(10, 3)
    assert DataTypes.CHAR(3) != DataTypes.VARCHAR(3)
    assert DataTypes.STRING() == DataTypes.VARCHAR(0x7FFFFFFF)
    assert DataTypes.BYTES() == DataTypes.VARBINARY(0x7FFFFFFF)
    row = DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT(), "the first")])
    assert isinstance(row, RowType) and row.field_names() == ["a"]
    assert row.field_types() == [DataTypes.INT()]
    assert row != DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())])


def anything(value: Any) -> Any:
    return value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: DataTypes.DECIMAL(39, 2),
            "precision of DECIMAL must be a whole number from 1 to 38, not 39",
        ),
        (lambda: DataTypes.DECIMAL(4, 5), "scale of DECIMAL must be a whole number from 0 to 4, not 5"),
        (lambda: DataTypes.CHAR(0), "length of CHAR must be a whole number from 1"),
        (
            lambda: DataTypes.TIMESTAMP(10),
            "precision of TIMESTAMP must be a whole number from 0 to 9, not 10",
        ),
        (
            lambda: DataTypes.INTERVAL(DataTypes.SECOND(), DataTypes.DAY()),
            "INTERVAL SECOND(6) TO DAY(2) is none",
        ),
        (lambda: DataTypes.INTERVAL(DataTypes.YEAR(), DataTypes.HOUR()), "INTERVAL YEAR(2) TO HOUR is none"),
        (lambda: DataTypes.ARRAY(anything(int)), "element type of ARRAY must be one of DataTypes"),
        (
            lambda: DataTypes.ROW([anything(DataTypes.INT())]),
            "ROW takes DataTypes.FIELD(name, type), not IntType(true)",
        ),
        (
            lambda: DataTypes.ROW([DataTypes.FIELD("a", DataTypes.INT())] * 2),
            "field names of a ROW must differ from each other: ['a', 'a']",
        ),
    ],
)
def test_what_is_no_type_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError)) as refused:
        make()
    assert message in str(refused.value)


class PointUDT(UserDefinedType):
    @classmethod
    def sql_type(cls) -> DataType:
        return DataTypes.ARRAY(DataTypes.DOUBLE())

    def serialize(self, obj: complex) -> list[float]:
        return [obj.real, obj.imag]

    def deserialize(self, datum: list[float]) -> complex:
        return complex(*datum)


def test_a_user_defined_type_converts_by_its_own_methods() -> None:
    point = PointUDT()
    assert (point.type_name(), point.module()) == ("point", __name__)
    assert point.need_conversion()
    assert point.from_sql_type(point.to_sql_type(1 + 2j)) == 1 + 2j
    assert point.to_sql_type(None) is None
    with pytest.raises(TypeError, match="abstract"):
        UserDefinedType()  # type: ignore[abstract]


def test_digits_are_kept_apart_from_none() -> None:
    exact = DataTypes.DECIMAL(5, 2).not_null()
    assert isinstance(exact, DecimalType)
    assert (exact.precision, exact.scale, exact.is_nullable) == (5, 2, False)
