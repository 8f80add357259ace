"""The rules: pure functions over frozen records. No clock, no I/O, no randomness."""
