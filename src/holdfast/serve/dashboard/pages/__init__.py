"""The pages of the dashboard, one file for each."""
