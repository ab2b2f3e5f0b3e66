"""Signed frames as signers send them, for tests of the sequencer."""

from stream_lsh.families.signer import Signer
from stream_lsh.kafka.settings import KafkaSettings
from stream_lsh.kafka.sign.framing import Chunk, Framer
from support.kafka.stages import KEY, line


class Document:
    """A record of the documents topic."""

    topic, timestamp, key, headers = "documents", 1000, None, ()

    def __init__(self, partition: int, offset: int) -> None:
        self.partition, self.offset = partition, offset
        self.value = line(partition * 10**6 + offset)


def frame(settings: KafkaSettings, *segments: tuple[int, int, int, int]) -> bytes:
    """A signed frame with a document at every position of its segments."""
    chunks = [Chunk(p, [Document(p, o) for o in range(a, b)], a, b, first) for p, a, b, first in segments]
    [signed] = Framer(settings, Signer(settings.signing, KEY), 2**26).frames(chunks, 1)
    return signed.data
