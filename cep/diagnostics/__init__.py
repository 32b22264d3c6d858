"""Problems of texts: their codes, their limits, and how they are shown."""
