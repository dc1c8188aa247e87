"""What you need to test with us.

``broker.BrokerThread`` is a broker for tests without an event loop of their own, ``faultfs.FaultFS`` a disk
in memory that loses what was not synced, ``faultplan.FaultyFiles`` makes any call of a disk go wrong. The
clock you move yourself is ``headrace.clock.ManualClock``.
"""
