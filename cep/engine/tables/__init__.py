"""Tables and views: versions of rows, and the row that is valid at the time of an event."""
