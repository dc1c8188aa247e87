"""Calls to endpoints: which process makes them, what it claims for them, and what became of them."""
