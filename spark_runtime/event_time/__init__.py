"""How far event time is: watermarks, partitions, what waits for it, and how that is shown."""
