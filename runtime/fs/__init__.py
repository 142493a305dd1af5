"""Storage behind one interface: local files and HDFS.

Owner: none. Import from `file_system`; the implementations are chosen by a path's scheme and loaded when
one is used.
"""
