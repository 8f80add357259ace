"""The memory store: dicts under one lock, and the executable specification of the contract."""
