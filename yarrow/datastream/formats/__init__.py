"""File and message formats: text, CSV, JSON and Parquet, one module each.

Owner: none. Import the module of a format; each loads only what it needs.
"""
