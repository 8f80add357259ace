"""Stress and proof: what Holdfast promises, under many processes, kill -9 and clocks that jump.

    test ──starts──▶ Crew ──python -m tests.stress.actor──▶ a role, in a process of its own
      ▲                                                        │ verbs          │ one line an event
      │                                                        ▼                ▼
      └──── Ledger, read at the end ◀─────────────────── the SQLite file    the ledger, a plain file

The ledger is outside the system: a process writes down what it was told *after* it was told, with one
append that survives its death. At the end the store is held against it. Each test has two sizes, a small
one for `make test` and the real one, marked `proof`, for `make proof`; see docs/proof.md.
"""
