"""Who may run a pipeline: one runner at a time holds the lease, the others wait for it.

``lease`` keeps it in a bucket, ``pinned`` by the pin of a consumer; ``standby`` keeps either for a runner,
which has no event loop.
"""
