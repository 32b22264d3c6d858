"""What differs between the versions of PySpark that are supported: a function for each difference."""
