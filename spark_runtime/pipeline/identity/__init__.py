"""What a checkpoint belongs to: its rules, and the history that its sinks know."""
