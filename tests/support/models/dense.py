"""A small feed that is dense in near-duplicates."""

import random

from stream_lsh.documents.document import Document


def dense(count: int, seed: int = 3) -> list[Document]:
    """Documents of five families, each a small edit of an earlier one; at least five."""
    chance = random.Random(seed)
    texts = [[f"w{chance.randrange(500)}" for _ in range(40)] for _ in range(5)]
    for _ in range(count - len(texts)):
        words = list(chance.choice(texts))
        for _ in range(chance.randrange(4)):
            words[chance.randrange(40)] = f"w{chance.randrange(500)}"
        texts.append(words)
    return [Document(number, " ".join(words)) for number, words in enumerate(texts)]
