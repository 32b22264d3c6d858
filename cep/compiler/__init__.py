"""Rule text -> Program, in stages. `compile.py` has a line for each."""
