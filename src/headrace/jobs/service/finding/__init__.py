"""Jobs and messages read: page by page, and by what they are; cancelled by what they are."""
