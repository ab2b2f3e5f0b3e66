"""What a client raises."""

from __future__ import annotations

from collections.abc import Sequence

from stream_lsh.errors import StreamLshError
from stream_lsh.serve.schemas import Accepted, Problem, Verdict


class RequestError(StreamLshError):
    """The service refuses a request, also after all retries.

    Attributes:
        problem: the answer. `problem.code` is stable; docs/reference/problems.md lists the codes.
        retry_after: seconds after which the service wants it again; None if it did not say.
    """

    def __init__(self, problem: Problem, retry_after: float | None = None) -> None:
        super().__init__(f"{problem.code}: {problem.detail}")
        self.problem = problem
        self.retry_after = retry_after

    @property
    def code(self) -> str:
        """The code of the problem."""
        return self.problem.code

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.problem.status


class VerdictPending(StreamLshError):
    """Only with a pipeline on Kafka: a document is accepted, and its verdict is not there in time.

    Attributes:
        accepted: the answer of the first such document; `accepted.look` is the address at which the verdict will be.
        answers: those of all documents of the request, in order, each a Verdict or an Accepted. `add_many` and
            `delete_many` have sent none of the documents after them.
    """

    def __init__(self, answers: Sequence[Verdict | Accepted]) -> None:
        self.accepted = next(answer for answer in answers if isinstance(answer, Accepted))
        self.answers = answers
        super().__init__(self.accepted.detail)


class Unreachable(StreamLshError):
    """The service cannot be reached, or did not answer in time, also after all retries."""
