"""The doors that other programs come in by. Each turns what it is asked into commands of `core.commands`."""
