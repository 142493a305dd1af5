"""What client, ApplicationMaster and containers of an application agree upon, and Skein.

Skein's types go no further than `skein_bridge`.
"""
