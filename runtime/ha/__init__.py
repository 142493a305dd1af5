"""Leadership, and the data that outlives a master: the interfaces, without high availability, and by ZooKeeper.

kazoo is imported here and nowhere else; its types go no further.
"""
