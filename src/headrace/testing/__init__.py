"""Tools for tests of programs that use Headrace.

``plugin`` is a pytest plugin, installed with Headrace: a broker, connections and pipelines as fixtures. A
broker for tests without an event loop of their own is ``headrace.sync.Broker``. The clock that you move
yourself is ``headrace.clock.ManualClock``.
"""
