"""Tests of rules as data: events, and the matches that are expected of them (`NAME.test.yaml`)."""
