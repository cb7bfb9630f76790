"""A process that holds a broker, for tests that end it in some way: `holder.py WAY`."""

import json
import sys

from keyedwm.testing.broker import broker

if __name__ == "__main__":
    with broker(sys.argv[1]) as running:
        description = {"bootstrap": running.bootstrap}
        if running.way == "local":
            description |= {"pid": running.pid, "home": str(running._home)}
        else:
            description |= {"name": running.name}
        print(json.dumps(description), flush=True)
        sys.stdin.read()
