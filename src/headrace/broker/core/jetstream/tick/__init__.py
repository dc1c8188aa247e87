"""What waits for the disk, and work that is done a slice at a time.

``flush_barrier`` holds every answer until the flush that carries what it confirms has completed; begin there.
``removals`` carries out large removals in slices, ``retry`` tries again what the store could not read,
``due_times`` knows what is due when.
"""
