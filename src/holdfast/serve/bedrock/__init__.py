"""The job-command port: the commands of Bedrock::Jobs over TCP."""
