"""Tests of a pipeline: rows given to its sources, rows expected of its views and sinks.

``cases`` reads the files that lie beside a pipeline, ``rows`` compares rows and shows how they differ (both
without Spark). ``given`` makes a DataFrame of rows that a source is given, decoded as the source decodes;
``trial`` runs a case as one batch, without a server.
"""
