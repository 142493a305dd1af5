"""Messages whose schemas are in a registry with the API of Confluent's: Avro here, JSON Schema in `json_schema`.

Owner: none. Importing it loads no client library.
"""

from yarrow.datastream.formats.registry.avro import ConfluentRegistryAvroDeserializationSchema
from yarrow.datastream.formats.registry.avro_serialization import ConfluentRegistryAvroSerializationSchema
from yarrow.datastream.formats.registry.errors import (
    IncompatibleSchemaError,
    RegistryMessageError,
    SchemaNotFoundError,
    SchemaRegistryError,
)
from yarrow.datastream.formats.registry.evolution import SchemaEvolution
from yarrow.datastream.formats.registry.registered_schema import SchemaReference
from yarrow.datastream.formats.registry.registration import SchemaRegistration
from yarrow.datastream.formats.registry.subjects import RegistrySubject, SubjectNameStrategy

__all__ = [
    "ConfluentRegistryAvroDeserializationSchema",
    "ConfluentRegistryAvroSerializationSchema",
    "IncompatibleSchemaError",
    "RegistryMessageError",
    "RegistrySubject",
    "SchemaEvolution",
    "SchemaNotFoundError",
    "SchemaReference",
    "SchemaRegistration",
    "SchemaRegistryError",
    "SubjectNameStrategy",
]
