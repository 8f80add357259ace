"""Workers: real processes, real signals."""
