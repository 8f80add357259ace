"""Workers: a supervisor that claims, renews and answers, and executors that run what users wrote."""
