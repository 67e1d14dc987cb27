"""Which modules count: the watched folder, what people do, approvals and overrides."""
