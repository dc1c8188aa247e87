"""Jobs that a worker holds: claimed, kept, finished, and taken back when their leases expire."""
