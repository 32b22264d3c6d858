"""Rules over history: how many alerts they give, how good these are, and for which values of parameters."""
