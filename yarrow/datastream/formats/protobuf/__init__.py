"""Protobuf messages as rows.

Owner: none. Import `messages` for the schemas. The protobuf library is imported where a type is made.
"""
