"""Event time: watermarks, partitions, waiting events, and their display."""
