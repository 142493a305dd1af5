"""Messages whose schemas are in a registry with the API of Confluent's: Avro here, JSON Schema in `json_schema`.

Owner: none. Importing it loads no client library.
"""

from yarrow.datastream.formats.registry.avro import ConfluentRegistryAvroDeserializationSchema
from yarrow.datastream.formats.registry.errors import (
    RegistryMessageError,
    SchemaNotFoundError,
    SchemaRegistryError,
)
from yarrow.datastream.formats.registry.evolution import SchemaEvolution
from yarrow.datastream.formats.registry.subjects import RegistrySubject

__all__ = [
    "ConfluentRegistryAvroDeserializationSchema",
    "RegistryMessageError",
    "RegistrySubject",
    "SchemaEvolution",
    "SchemaNotFoundError",
    "SchemaRegistryError",
]
