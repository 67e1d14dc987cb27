"""A child that does nothing until a signal ends it."""

import signal

if __name__ == "__main__":
    signal.pause()
