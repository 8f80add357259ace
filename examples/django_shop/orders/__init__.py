"""Orders, and the jobs that follow from them."""
