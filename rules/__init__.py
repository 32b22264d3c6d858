"""The rule library, and how rule files are found, checked and compiled."""
