"""Sensor readings: real series with labelled anomalies, four rules for any scale, and their score."""
