"""The papers and sites of the demo, all made up, with the boilerplate that they put around a story."""

from __future__ import annotations

from dataclasses import dataclass

from stream_lsh.demo.texts import read


@dataclass(frozen=True)
class Outlet:
    """A paper. `header` and `footer` surround a story from another paper, `credit` is below its own."""

    key: str
    language: str
    credit: str = ""
    header: str = ""
    footer: str = ""


AGENCY, COUNTY = Outlet("nordwire", "en"), Outlet("notices", "en")
ENGLISH, OTHERS = (tuple(Outlet(**outlet) for outlet in outlets) for outlets in read("outlets").values())
