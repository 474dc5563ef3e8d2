"""`python -m muster COMMAND …` is `muster COMMAND …`, by exec; `python -m muster run` is `python -m muster.run`."""
import os
import sys

import muster
from muster import run

if __name__ == "__main__":
    if sys.argv[1:2] == ["run"]:
        run._become(sys.argv[2:])
    os.execv(muster.binary(), ["muster", *sys.argv[1:]])
