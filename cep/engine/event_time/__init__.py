"""Event time in the engine: when an event is late, and clocks of devices."""
