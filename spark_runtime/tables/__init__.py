"""Tables that rules join, as Spark gives them to the operator."""
