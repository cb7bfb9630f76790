"""A process that holds a broker, for tests that end it in some way: `holder.py WAY`."""

import json
import sys

from keyedwm.testing.broker import broker

if __name__ == "__main__":
    with broker(sys.argv[1]) as held:
        told = {"bootstrap": held.bootstrap}
        if held.way == "local":
            told |= {"pid": held.pid, "home": str(held._home)}
        else:
            told |= {"name": held.name}
        print(json.dumps(told), flush=True)
        sys.stdin.read()
