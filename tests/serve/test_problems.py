"""Problems: the page describes each code, and the code uses no other one."""

import re
from pathlib import Path

from stream_lsh.serve.codes import CODES

ROOT = Path(__file__).parents[2]


def test_page_has_each_code() -> None:
    page = (ROOT / "docs/reference/problems.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| (.+) \| (.+) \|$", page, re.MULTILINE)
    assert rows == [(name, str(code.status), code.title, code.remedy) for name, code in CODES.items()]
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "stream_lsh/serve").rglob("*.py"))
    assert set(re.findall(r'\bcode="(\w+)"', sources)) <= set(CODES)
