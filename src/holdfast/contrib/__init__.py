"""Holdfast inside the frameworks of others: one folder for each, which needs that framework."""
