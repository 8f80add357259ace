"""Suites and helpers for tests, shipped: whoever writes a store can hold it against ours."""
