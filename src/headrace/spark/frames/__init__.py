"""Delivered messages between a link and a batch: as frames, or many together as runs of payloads."""
