"""How calls of the API server fail; without the official client, which takes seconds to import."""

from __future__ import annotations


class CredentialsMissing(Exception):
    """The program that the kubeconfig names for credentials failed; its words, if it had any."""


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
        """Whether a quota is exhausted; the call can succeed later."""
        return self.status == 403 and "exceeded quota" in self.message

    @property
    def is_denial(self) -> bool:
        """Whether the caller is not known, or has not the right.

        One such answer decides nothing: an API server that starts gives it to everybody, until it
        has read users and roles.
        """
        has_no_right = self.status == 403 and "User " in self.message and " cannot " in self.message
        return self.status == 401 or has_no_right
