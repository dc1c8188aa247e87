"""How Spark's Java comes up sooner: it finds its classes read and verified in an archive of this user.

``classes`` says where the archive of this Spark and this Java lies and gives Java the options to use it;
``making`` makes it, in a process of its own at the lowest priority, and ``exercise`` is what that runs.
Nothing here is a reason for a run to fail.
"""
