"""Traces: spans of adds and runs."""
