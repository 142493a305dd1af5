"""PyFlink's conversions of values that come out of Java, under its names.

Owner: the calling thread. Values of streams are Python objects everywhere in Yarrow, so there is nothing to convert;
the module has PyFlink's name, not what it holds.
"""

from __future__ import annotations

from typing import Any, NoReturn

from yarrow.common.typeinfo import TypeInformation
from yarrow.runtime.common.errors import UnsupportedFeatureError

__all__ = ["convert_to_python_obj", "pickled_bytes_to_python_converter"]


def convert_to_python_obj(data: Any, type_info: TypeInformation) -> Any:
    """Return a collected value as it is: it is a Python object of this type already.

    Raises TypeError for a value that is none.
    """
    if data is not None and not type_info.accepts(data):
        raise TypeError(f"convert_to_python_obj: {data!r} is no value of the type {type_info}")
    return data


def pickled_bytes_to_python_converter(data: Any, field_type: TypeInformation) -> NoReturn:
    """Refused: no value travels as the pickles that PyFlink makes of Java's."""
    raise UnsupportedFeatureError(
        "pickled_bytes_to_python_converter is refused: this version has no Java objects, and no pickles made of them."
        " Records are Python objects already; leave the conversion out."
    )
