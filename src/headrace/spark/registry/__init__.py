"""Schemas of a registry that speaks Confluent's HTTP API: read, never written.

``schemas`` says what is asked for and what the answers mean, ``http`` asks, ``avro_names`` puts what an Avro
schema refers to into it.
"""
