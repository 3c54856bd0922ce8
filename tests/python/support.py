"""What the tests of the Python package share."""

import sys

checks = 0


def check(condition, text):
    global checks
    checks += 1
    if not condition:
        sys.exit(f"FAILED: {text}")


def raises(kind, text, function, *arguments, **options):
    """The failure."""
    try:
        function(*arguments, **options)
    except kind as failure:
        check(text in str(failure), f"'{failure}' has no '{text}'")
        return failure
    return check(False, f"no {kind.__name__}: {text}")


def module(name):
    """None, and said, where it is not there."""
    try:
        return __import__(name)
    except ImportError:
        print(f"part skipped: no {name} here")
        return None
