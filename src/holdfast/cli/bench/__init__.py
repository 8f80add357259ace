"""What `holdfast bench` measures: by the public API, on stores of its own."""
