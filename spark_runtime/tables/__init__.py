"""Tables that rules join, as the operator gets them from Spark."""
