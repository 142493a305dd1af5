"""The source of lines that come through a socket."""
