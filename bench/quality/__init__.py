"""Quality of what the engine computes: against its parent weights and against other engines."""
