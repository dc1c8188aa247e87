"""Messages: accepted, stored, fanned out, alone and many at once, at their time and by schedules."""
