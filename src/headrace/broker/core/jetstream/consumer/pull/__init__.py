"""Pull consumers: requests come in, wait, and are served in the order of a priority policy.

Begin with ``pulls``, which receives requests and ends them. ``queue`` and ``policy`` are pure: who waits,
and who may have the next message. ``recipients`` hands messages to requests in a delivery pass, ``pinning``
moves the pin of a ``pinned_client`` consumer from one client to the next.
"""
