"""No tables. Django sends its signals to applications with this file only: see `apps`."""
