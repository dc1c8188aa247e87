"""The blocking facade: the asyncio client on a background thread. Users import ``headrace.sync``."""
