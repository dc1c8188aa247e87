"""The types of the JetStream API, sans-I/O, shared by client and broker.

Modules: ``streams``, ``consumers``, ``messages`` (documents), ``errors`` (the table), ``acks`` (ack
subjects), ``names`` (subjects, headers, statuses), ``roles`` (what consumers are for), ``times`` (RFC 3339),
``envelope`` (answers), ``base``.
"""
