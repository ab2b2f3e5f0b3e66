"""What a client raises."""

from __future__ import annotations

from stream_lsh.errors import StreamLshError
from stream_lsh.serve.schemas import Accepted, Problem


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
    """Only with a pipeline on Kafka: the document is accepted, and its verdict is not there in time.

    Attributes:
        accepted: the answer; `accepted.look` is the address at which the verdict will be.
    """

    def __init__(self, accepted: Accepted) -> None:
        super().__init__(accepted.detail)
        self.accepted = accepted


class Unreachable(StreamLshError):
    """The service cannot be reached, or did not answer in time, also after all retries."""
