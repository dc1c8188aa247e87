"""Channels that live in a stream of a broker, and their messages that became jobs."""
