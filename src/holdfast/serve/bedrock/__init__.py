"""The job-command port: the documents' commands, typed into a TCP connection."""
