"""The running gateway: asked, followed, its answers shown."""
