"""Push consumers: messages go to a deliver subject while somebody listens there.

Begin with ``push``, which watches for listeners and holds deliveries back; ``window`` is the pure arithmetic
of flow control and of a rate. ``recipients`` hands messages to the listeners in a delivery pass.
"""
