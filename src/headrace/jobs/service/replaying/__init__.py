"""Jobs handed out once more: what was delivered, and what is dead."""
