"""The agreement of client, ApplicationMaster and containers of an application, and Skein.

Skein's types go no further than `skein_bridge`.
"""
