"""Certificates: exported, and checked without the gateway."""
