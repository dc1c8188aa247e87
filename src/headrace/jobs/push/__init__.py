"""Calling endpoints: which addresses may be called, how calls are signed, when they are retried."""
