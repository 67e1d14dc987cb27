"""What the gateway is joined to: its configuration, judged, and the binding sheet."""
