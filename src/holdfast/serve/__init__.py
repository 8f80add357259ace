"""The servers through which other programs use a store. Each turns requests into commands and queries."""
