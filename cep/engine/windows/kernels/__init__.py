"""The compiled loops of windows.

`frames` says for each event which events are in its window, as a range of what its key kept and got. The
ranges of one key only move on. So the other kernels, one for each kind of function, add what comes in and
remove what goes out, and know nothing of frames. Nothing is carried from batch to batch but the entries
themselves (or sums that are exact), so a result depends on the content of its window only.
"""
