"""What travels between processes: parcels of events, rows of output, the plan of a micro-batch."""
