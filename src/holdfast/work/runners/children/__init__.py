"""Programs that run inside contexts. Each uses only what its interpreter brings."""
