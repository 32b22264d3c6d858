"""Tests of rules as data: events, and the matches that are expected (`NAME.test.yaml`)."""
