"""Signed frames as signers send them, for tests of the sequencer."""

from collections.abc import Sequence

from stream_lsh.families.signer import Signer
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.framing import Chunk, Framer
from support.kafka.stages import KEY, line


class Document:
    """A record of the documents topic."""

    topic, timestamp, key, headers = "documents", 1000, None, ()

    def __init__(self, partition: int, offset: int, value: bytes | None) -> None:
        self.partition, self.offset = partition, offset
        self.value = value or line(partition * 10**6 + offset)


def frame(
    settings: KafkaSettings, *segments: tuple[int, int, int, int], values: Sequence[bytes] = (), signed_at: int = 1
) -> bytes:
    """A signed frame with a document at every position of its segments. values: of the documents, in their order."""
    given = iter(values)
    chunks = [
        Chunk(p, [Document(p, o, next(given, None)) for o in range(a, b)], a, b, first) for p, a, b, first in segments
    ]
    [signed] = Framer(settings, Signer(settings.signing, KEY), 2**26).frames(chunks, signed_at)
    return signed.data
