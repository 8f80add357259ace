"""The commands of `holdfast`, one file for each; `cli/app.py` imports them when they are called."""
