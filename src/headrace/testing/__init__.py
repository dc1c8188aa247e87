"""Tools for tests of programs that use Headrace.

``plugin`` is a pytest plugin, installed with Headrace: a broker and connections as fixtures.

``broker.BrokerThread`` is a broker for tests without an event loop of their own, ``faultfs.FaultFS`` a
disk in memory that loses unsynced data, ``faultplan.FaultyFiles`` injects a fault into any call of a
disk. The clock that you move yourself is ``headrace.clock.ManualClock``.
"""
