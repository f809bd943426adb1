"""Waiting for a condition, for the tests that start processes."""

import time


def wait(what, condition, within=90):
    """Returns the first true value of the condition. The time limit is in seconds."""
    deadline = time.monotonic() + within
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {within} s")
        time.sleep(0.1)
