"""``python -m tests.property``: see `tests.property.fuzz`.

Processes that multiprocessing starts anew never import a package's ``__main__``: the work is elsewhere.
"""

import sys

from tests.property.fuzz import main

sys.exit(main())
