"""Schemas that messages are written with: where they are found, and how values are read and written by them.

``framing`` finds the id that a message has, ``registry`` says what is asked of a registry that speaks
Confluent's HTTP API and what the answers mean, ``http`` asks it, ``avro_names`` puts what an Avro schema
refers to into it. ``codecs`` reads and writes values, ``lookup`` keeps codecs and fetches each once.
``avro_shape`` refuses schemas of which a value costs more than its bytes, ``avro_values`` reads and writes
Avro's values, ``avro_resolution`` makes those of a writer's schema those of a reader's, ``avro_fitting`` says
which may be written. No Spark, and no client.
"""
