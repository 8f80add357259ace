"""A live queue moved to another store: copying it, and stores that follow the move."""
