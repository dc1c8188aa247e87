"""The JetStream brain: streams, consumers and their API. Deterministic: time and disk are handed in.

==================  ==============================================================================
the whole           ``engine`` wires it and runs the ticks; ``context`` ports and marks; ``gate`` where
                    acknowledgements wait for the disk; ``registry`` streams and consumers by name
streams             ``stream`` ingest; ``stream_storing``, ``stream_removal`` in and out; ``publish_checks``,
                    ``publish_headers``, ``dedupe``; ``retention`` what an ack removes; ``expiry``, ``ttl``
                    and ``wheel`` what age removes; ``stream_config``, ``pedantic``, ``levels``,
                    ``consumer_limits`` defaults and rules
stream features     ``republish``; ``counters``; ``batch_publish`` with ``batch_checks`` atomic batches;
                    ``schedules`` with ``schedule_patterns`` and ``cron``
consumers           ``consumer`` ties together: ``delivery`` floors and pending, ``pullqueue`` waiting
                    requests, ``policy`` whose turn it is, ``turn`` requests meet messages, ``pulls`` and
                    ``pullrequest`` arrival, ``acks``, ``alarm`` the one timer, ``pending`` the count,
                    ``replay``; ``journal`` the state on disk; ``consumer_config``, ``consumer_start``
the API             ``api`` finds endpoints and words refusals; ``streams_api``, ``messages_api``,
                    ``consumers_api``, ``consumer_create``, ``consumer_info``, ``direct_get``
small things        ``advisories``, ``statuses``, ``durations``, ``ranges``, ``ack_body``,
                    ``ack_dispatch``, ``priority_config``, ``options``
==================  ==============================================================================
"""

from __future__ import annotations

from .config.options import JetStreamOptions
from .engine.engine import JetStream

__all__ = ["JetStream", "JetStreamOptions"]
