"""KeptSchema: the schema by which a job began to read, as its snapshots have it.

Layer 1 (vocabulary); any thread; plain values. A program may ask a registry for a schema while it is built, and get
another one the next time. A job that goes on from a snapshot stays with the schema of its first start.
"""

from __future__ import annotations

from typing import NamedTuple

#: Name of the operator state that has it, one element a subtask; part of the format of savepoints.
KEPT_SCHEMA = "source-kept-schema"


class KeptSchema(NamedTuple):
    """A schema, and what the program has asked for."""

    #: The subject whose latest version the program has asked for; empty = the program itself says which schema it is.
    subject: str
    #: For log lines and errors, such as "version 2 of the subject 'orders-value'".
    shown: str
    #: All that its reader needs.
    content: str

    def stays(self, own: KeptSchema) -> bool:
        """Whether a job goes on with this schema of a snapshot, although its program was built with another, `own`.

        A program that names another subject, version or schema has been changed, and its schema holds.
        """
        return bool(self.subject) and self.subject == own.subject
