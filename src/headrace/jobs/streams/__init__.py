"""Streams of a broker: channels that live in one, channels that one feeds, outcomes published to one.

A channel that lives in a stream is published to the broker (``jobs/broker``), and delivered from a durable
consumer of it. The room decides which message of a stream may be called next (:mod:`.waiting`, pure). It is
handed the runtime and a wake-up; retries and dead letters are the database's (:mod:`..service.streamed`).
Begin with :class:`.source.StreamSource`; :mod:`.feed` is the other way, where messages are copied.
"""
