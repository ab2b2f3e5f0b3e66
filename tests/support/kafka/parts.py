"""Records as their readers put them together, said in the simplest way: parts of the same bytes, in their order."""

from collections.abc import Iterable, Iterator

from stream_lsh.settings.model import Settings
from stream_lsh.wire.parts import Part, is_part


def whole(records: Iterable[bytes], settings: Settings) -> Iterator[bytes]:
    """The records of a partition, each when its last part has come."""
    found: dict[tuple[object, ...], list[bytes]] = {}
    for data in records:
        if not is_part(data):
            yield data
            continue
        part = Part.decode(data, settings)
        pieces = found.setdefault((part.place, part.digest, part.count), [])
        if part.number == len(pieces):
            pieces.append(bytes(part.data))
            if len(pieces) == part.count:
                yield b"".join(pieces)
                pieces.clear()
