"""JSON messages whose schemas, of JSON Schema, are in a registry.

Owner: none. Importing it loads no client library.
"""

from yarrow.datastream.formats.registry.json_schema.reading import ConfluentRegistryJsonDeserializationSchema
from yarrow.datastream.formats.registry.json_schema.writing import ConfluentRegistryJsonSerializationSchema

__all__ = ["ConfluentRegistryJsonDeserializationSchema", "ConfluentRegistryJsonSerializationSchema"]
