"""The executor process: imports the user's code and runs it. The supervisor starts it."""
