"""Files that registries and Confluent's serializers know: a schema may import them without a reference.

Owner: any thread; plain values. Numbers, names and types of fields are the public format of these files, and the
descriptors in the package confluent-kafka tell them. The texts are Yarrow's own. Must not run a compiler.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from yarrow.datastream.formats.registry.protobuf.google_types import GOOGLE_TYPES

#: Each kind of element takes its notes as an option of this number.
_NOTES_OF: Final = ("File", "Message", "Field", "Enum", "EnumValue")
_NOTES_NUMBER: Final = 1088


def _notes() -> str:
    """Return the text of the file by which schemas carry documentation, tags, parameters and rules."""
    options = "".join(
        f"extend google.protobuf.{kind}Options {{ Meta {_option_name(kind)} = {_NOTES_NUMBER}; }}\n"
        for kind in _NOTES_OF
    )
    return (
        'syntax = "proto3";\npackage confluent;\nimport "google/protobuf/descriptor.proto";\n'
        "message Meta {\n"
        "  string doc = 1;\n  map<string, string> params = 2;\n"
        "  repeated string tags = 3;\n  repeated Rule rules = 4;\n"
        "}\n"
        "message Rule { string name = 1; string doc = 2; string expr = 3; string sql = 4; }\n" + options
    )


def _option_name(kind: str) -> str:
    return "enum_value_meta" if kind == "EnumValue" else f"{kind.lower()}_meta"


#: Name of the import -> text of the file.
KNOWN_FILES: Final[Mapping[str, str]] = {
    "confluent/meta.proto": _notes(),
    "confluent/type/decimal.proto": (
        'syntax = "proto3";\npackage confluent.type;\n'
        "message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }\n"
    ),
    "confluent/type/variant.proto": (
        'syntax = "proto3";\npackage confluent.type;\nmessage Variant { bytes metadata = 1; bytes value = 2; }\n'
    ),
    # The former place of the decimal.
    "confluent/types/decimal.proto": 'syntax = "proto3";\nimport public "confluent/type/decimal.proto";\n',
    **GOOGLE_TYPES,
}
