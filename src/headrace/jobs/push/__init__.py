"""Calling endpoints: which address may be called, how it is signed, when it is tried again."""
