"""The compiled loops of windows.

`frames` gives for each event the events in its window, as a range of the kept and new entries of its key. The
ranges of one key only move forward. So the other kernels, one for each kind of function, add the entries that
enter and remove those that leave, and know nothing about frames. Only the entries themselves (or exact sums)
are carried from batch to batch, so a result depends only on the content of its window.
"""
