"""JSON messages whose writers' schemas, of JSON Schema, are in a registry.

Owner: none. Importing it loads no client library.
"""

from yarrow.datastream.formats.registry.json_schema.reading import ConfluentRegistryJsonDeserializationSchema

__all__ = ["ConfluentRegistryJsonDeserializationSchema"]
