"""Write the generated pages of docs/reference: `python .ci/reference`.

PAGES has the page and the function that renders it; tests/test_reference.py compares both.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import command_line_page
import python_page
import settings_page

FOLDER = Path(__file__).parents[2] / "docs" / "reference"
PAGES = {
    "command-line.md": command_line_page.rendered,
    "python.md": python_page.rendered,
    "settings.md": settings_page.rendered,
}

if __name__ == "__main__":
    for name, rendered in PAGES.items():
        (FOLDER / name).write_text(rendered(), encoding="utf-8")
