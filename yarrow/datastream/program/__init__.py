"""How a program becomes a StreamGraph: the builder, the user's functions and files, and the waiting client.

Streams and the environment import these parts, which know neither. Programs do not import from here.
"""
