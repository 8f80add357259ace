"""What stores share: the clock, waiting for servers, polling, the stored form of a job. No store is used."""
