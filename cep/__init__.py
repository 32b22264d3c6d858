"""Event pattern rules: language, compiler, engine, command. Knows nothing of Spark."""
