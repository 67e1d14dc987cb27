"""The processes that check: their pool, their seats and what they do."""
