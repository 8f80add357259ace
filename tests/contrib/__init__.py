"""Holdfast inside the frameworks of others."""
