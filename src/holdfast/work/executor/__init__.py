"""The executor's process: imports what users wrote and runs it. The supervisor starts it."""
