"""Whether a column of a DataFrame fits a state, and can be a key: decided by types alone, before anything starts.

Owner: the calling thread; pure. Values that are beyond a narrower type are found when they are written.
"""

from __future__ import annotations

import pyarrow as pa

from yarrow.common.typeinfo import BasicTypeInfo, TypeInformation
from yarrow.datastream.program.arrow_schemas import type_of_values
from yarrow.runtime.data.key_types import keys_may_meet
from yarrow.runtime.snapshot.handles import StateKind
from yarrow.state_processor.errors import StateProcessorError
from yarrow.state_processor.keyed_writing import KeyedTarget
from yarrow.state_processor.shapes import declared_shape, list_shape, map_shape
from yarrow.state_processor.table_cells import is_list

_types = pa.types


def check_value_column(kind: pa.DataType, target: KeyedTarget, what: str) -> None:
    """Checks the column of values. Raises StateProcessorError naming both types."""
    value = declared_shape(target.value_type)
    if target.kind is StateKind.MAP:
        if not _types.is_map(kind):
            raise StateProcessorError(f"{what}: a map state takes a column of maps, not of {kind}")
        key = None if target.map_key_type is None else declared_shape(target.map_key_type)
        if value is not None and key is not None:
            _check(kind, map_shape(key, value).type, what)
        return
    if target.kind is StateKind.LIST and is_list(kind):
        if value is not None:
            _check(kind, list_shape(value).type, what)
        return
    if value is not None:
        _check(kind, value.type, what)
    elif isinstance(target.value_type, BasicTypeInfo) and not _is_number_for(target.value_type, kind):
        raise StateProcessorError(
            f"{what}: a column of {kind} holds no values of {target.value_type}; cast it in the DataFrame"
        )


def _is_number_for(declared: BasicTypeInfo, kind: pa.DataType) -> bool:
    """Whether cells can be big integers or decimals, whose Arrow type only their values say."""
    if declared.tag == "BIG_INT":
        return bool(_types.is_integer(kind) or (_types.is_decimal(kind) and kind.scale == 0))
    if declared.tag == "BIG_DEC":
        return bool(_types.is_integer(kind) or _types.is_decimal(kind))
    return True


def _check(found: pa.DataType, wanted: pa.DataType, what: str) -> None:
    if not fits(found, wanted):
        raise StateProcessorError(
            f"{what}: the state holds {wanted}, and a column of {found} does not fit it; cast it in the DataFrame"
        )


def fits(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether each value of the one type, or all that are not too large, is a value of the other."""
    if found == wanted or _types.is_null(found):
        return True
    if _types.is_integer(wanted):
        return bool(_types.is_integer(found))
    if _types.is_floating(wanted):
        return bool(_types.is_integer(found) or _types.is_floating(found))
    if _types.is_map(wanted):
        return bool(
            _types.is_map(found)
            and fits(found.key_type, wanted.key_type)
            and fits(found.item_type, wanted.item_type)
        )
    if is_list(wanted):
        return is_list(found) and fits(found.value_type, wanted.value_type)
    if _types.is_struct(wanted):
        return bool(
            _types.is_struct(found)
            and [field.name for field in found] == [field.name for field in wanted]
            and all(fits(one.type, other.type) for one, other in zip(found, wanted, strict=True))
        )
    if _types.is_timestamp(wanted):
        return bool(_types.is_timestamp(found) and (found.tz is None) == (wanted.tz is None))
    alike = (
        (_types.is_string, _types.is_large_string),
        (_types.is_binary, _types.is_large_binary, _types.is_fixed_size_binary),
        (_types.is_time,),
        (_types.is_duration,),
        (_types.is_date,),
        (_types.is_decimal,),
    )
    return any(any(kind(wanted) for kind in kinds) and any(kind(found) for kind in kinds) for kinds in alike)


def check_key_column(kind: pa.DataType, declared: TypeInformation | None, what: str) -> None:
    """Checks the column of keys. Raises StateProcessorError for a type that is no key, or not the declared one."""
    if not _can_be_key(kind):
        raise StateProcessorError(
            f"{what}: a column of {kind} cannot be a key; key by a number, text, time, or a struct of these"
        )
    if not keys_may_meet(type_of_values(kind), declared):
        raise StateProcessorError(
            f"{what}: the keys are declared {declared}, and no value of a column of {kind} is such a key"
        )


def _can_be_key(kind: pa.DataType) -> bool:
    if _types.is_struct(kind):
        return kind.num_fields > 0 and all(_can_be_key(field.type) for field in kind)
    return not (_types.is_nested(kind) or _types.is_null(kind))
