"""The engine of an account: owns streams and consumers, journals and recovers them, works through a tick.

It is handed the ports (bus, storage, clock, randomness, timers) and wires everything below. Begin with
``engine``; ``registry`` is the life of streams and consumers, and brings them back at a start, ``restores``
has streams in the making.
"""
