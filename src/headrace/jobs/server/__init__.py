"""One process of the service, from its start to its end.

``server`` puts the other rooms together, starts, drains and stops them; ``reload`` takes a changed
configuration while they run. Begin with :func:`.server.serve`.
"""
