"""The metrics that the page of monitoring names."""

from __future__ import annotations

import re

from tests.pages import DOCS

PAGE = DOCS / "operate/monitoring.md"

METRICS = set(re.findall(r"^\| `(cep_\w+)`", PAGE.read_text(), re.MULTILINE))

HISTOGRAMS = set(re.findall(r"^\| `(cep_\w+)` \|.*\| histogram", PAGE.read_text(), re.MULTILINE))
