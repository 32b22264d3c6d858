"""Problems of texts: their codes, their limits, how they are shown."""
