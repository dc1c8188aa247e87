"""The JetStream vocabulary, sans-I/O: what the client says and the broker understands.

Modules: ``streams``, ``consumers``, ``messages`` (documents), ``errors`` (the table), ``acks`` (ack
subjects), ``names`` (subjects, headers, statuses), ``times`` (RFC 3339), ``envelope`` (answers), ``base``.
"""
