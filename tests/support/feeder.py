"""A process that feeds an index from where it stands, for a test that looks at what it writes.

    python -m support.feeder FOLDER SETTINGS SEED DOCUMENTS WORDS OUT [LOOKS STATES]

Commits are not waited for: what the system has outlives the process. A verdict is a line of OUT when it is given;
FOLDER/../begun is there when the index is open. What was committed says the entry "feed" of the index.
LOOKS: a file to which a reader adds a byte for each state that it has seen on the way; there must be STATES of them
before the end, so it is waited for.
"""

import json
import random
import sys
import time
from pathlib import Path

from stream_lsh.index.index import Index
from stream_lsh.settings.model import Settings
from support.feeds import WORDS, changing, nasty
from support.indexes import fed


def main(folder: str, settings: str, seed: str, documents: str, words: str, out: str, *reader: str) -> None:
    given = Settings(**json.loads(settings))
    feed = (changing if given.on_conflict == "update" else nasty)(int(seed), int(documents), words=WORDS[: int(words)])
    index = Index(given, Path(folder), durable=False)
    at = (index.store.named("feed") or {"next": index.count})["next"]
    Path(folder).with_name("begun").touch()
    chance = random.Random()
    with Path(out).open("a") as file:
        while at < len(feed):
            size = min(chance.choice((1, 10, 40, 100, 400)), len(feed) - at)
            for verdict in fed(index, feed[at : at + size], at, size):
                file.write(json.dumps(verdict) + "\n")
            at += size
            if chance.random() < 0.6:
                file.flush()
                index.commit({"feed": {"next": at}})
                if reader:
                    looks, states = Path(reader[0]), int(reader[1])
                    while looks.stat().st_size < at * (states + 1) // len(feed) < states + 1:
                        time.sleep(0.01)
    index.commit({"feed": {"next": at}})
    index.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
