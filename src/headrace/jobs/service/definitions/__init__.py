"""Producers, channels, consumers and keys: read, written, authenticated; and their secrets, sealed."""
