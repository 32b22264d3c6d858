"""The differences between supported versions of PySpark: a function for each."""
