"""Sensor readings: real series with labelled anomalies, four rules without a scale, and what they hit."""
