"""What client, ApplicationMaster and TaskExecutor containers of a YARN application agree upon, and the one module that
speaks Skein. Skein's types go no further than `skein_bridge`.
"""
