"""Tests of the Redis store alone, on real servers."""
