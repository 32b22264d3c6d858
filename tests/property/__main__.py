"""``python -m tests.property`` runs `tests.property.fuzz`.

The code is not here, because processes that multiprocessing starts never import a package's ``__main__``.
"""

import sys

from tests.property.fuzz import main

sys.exit(main())
