"""Calling endpoints: which addresses may be called, and when calls are retried."""
