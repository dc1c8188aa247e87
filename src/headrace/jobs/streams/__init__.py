"""Channels that live in a stream: published to the broker, delivered from a durable consumer of it.

The room decides which message of a stream may be called next (:mod:`.waiting`, pure), and is the only one
beside the feed that speaks to a broker. It is handed the runtime and a wake-up; retries and dead letters are
the database's (:mod:`..service.streamed`). Begin with :class:`.source.StreamSource`.
"""
