"""What carries out commands: a function for each, in the table of `verbs.py`, over a batch's working set."""
