"""Model bundles: on disk, held out for, and those of the running gateway."""
