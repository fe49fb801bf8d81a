"""The errors of calls to the API server; imports no official client, which takes seconds."""

from __future__ import annotations


class CredentialsMissing(Exception):
    """The program that the kubeconfig names for credentials failed; the text is its output."""


class ApiUnavailable(Exception):
    """The API server did not answer, or asked to be called later.

    The call may have had an effect.
    """


class ApiError(Exception):
    """The API server refused a call.

    Attributes:
        status: HTTP status, or the code in an error event of a watch.
        reason: one of Kubernetes' own words, such as ``AlreadyExists``.
        message: a sentence for people.
    """

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message

    @property
    def is_quota(self) -> bool:
        """True if a quota is exhausted; the call can succeed later."""
        return self.status == 403 and "exceeded quota" in self.message

    @property
    def is_denial(self) -> bool:
        """True if the caller is unknown, or lacks the right.

        One such answer decides nothing: an API server that starts refuses all callers until it has
        read users and roles.
        """
        has_no_right = self.status == 403 and "User " in self.message and " cannot " in self.message
        return self.status == 401 or has_no_right
