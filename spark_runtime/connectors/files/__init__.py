"""Files of events as a source: what is new in a folder, and where event times begin and end in it."""
