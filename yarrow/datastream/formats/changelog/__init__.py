"""Change logs as JSON messages: Debezium, Canal and Maxwell, one module each.

Owner: none. Rows have the RowKind of their change. Import the module of a tool.
"""
