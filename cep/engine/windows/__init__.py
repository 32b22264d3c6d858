"""What an event knows of its past and of its surroundings: columns computed once events are in order."""
