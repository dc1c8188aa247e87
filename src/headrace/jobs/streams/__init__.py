"""Streams of a broker: channels that one feeds, and outcomes of jobs published to one.

This room alone of the job service speaks to a broker. Begin with :mod:`.feed`.
"""
