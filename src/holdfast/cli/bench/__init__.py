"""What `holdfast bench` measures, and the raw engines beside which it does."""
