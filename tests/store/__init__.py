"""Tests of the stores: what all promise, and what is particular to each."""
