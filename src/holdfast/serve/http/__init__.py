"""The HTTP server: `/v1` for every command and query, and the paths of the documents."""
