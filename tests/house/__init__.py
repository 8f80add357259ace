"""The house rules, as tests: floors, sizes, docstrings, documents that run, words that stay out.

Each file holds one rule: the list of what it allows, a function that looks at a folder and returns
its complaints, the test that there are none here, and tests that it does complain about a folder
which was made wrong on purpose.
"""
