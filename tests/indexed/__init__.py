"""Indexed consumers, logs and pipelines, on every store."""
