"""The worker's side: jobs, their plan, and the engine that runs it."""
