"""What an event knows about its past and its surroundings: columns computed once events are in order."""
