"""Several stores behind one queue."""
