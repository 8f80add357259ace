"""The promises of `store/contract.py`, one test each; `store_suite` gathers them."""
