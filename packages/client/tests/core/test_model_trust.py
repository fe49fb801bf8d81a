"""A trained model's code runs only if it is the user's own or trusted."""

from __future__ import annotations

import pytest

from edl.core import model_trust
from edl.core.problem import Problem

DIGEST = "@sha256:" + 64 * "a"
OWN = "registry.example.com/me/zoo"


@pytest.mark.parametrize(
    ("image", "repositories"),
    [
        (OWN + DIGEST, (OWN,)),
        (OWN + DIGEST, ("", "registry.example.com/me/")),
        ("localhost:5000/zoo" + DIGEST, ("localhost:5000",)),
    ],
)
def test_an_image_of_a_repository_of_the_user_may_run(
    image: str, repositories: tuple[str, ...]
) -> None:
    model_trust.check_image(image, repositories, where="m", accepted=False)


@pytest.mark.parametrize("repositories", [(), ("",), ("registry.example.com/m",), (OWN + "/deep",)])
def test_another_image_has_to_be_trusted(repositories: tuple[str, ...]) -> None:
    with pytest.raises(Problem, match=OWN) as refused:
        model_trust.check_image(OWN + DIGEST, repositories, where="m", accepted=False)
    assert refused.value.code == "FORBIDDEN"
    assert "--trust-model" in refused.value.remedy
    assert f"--trusted-images {OWN}" in refused.value.remedy
    model_trust.check_image(OWN + DIGEST, repositories, where="m", accepted=True)


@pytest.mark.parametrize("image", [OWN, f"{OWN}:latest", f"-v{DIGEST}", f"a b{DIGEST}", DIGEST])
def test_an_image_without_a_digest_never_runs(image: str) -> None:
    with pytest.raises(Problem, match="not pinned"):
        model_trust.check_image(image, (OWN, image), where="m", accepted=True)


def test_files_of_other_users_have_to_be_trusted() -> None:
    model_trust.check_owners({0, 1000}, 1000, where="m", accepted=False)
    with pytest.raises(Problem, match="number 1001") as refused:
        model_trust.check_owners({0, 1000, 1001}, 1000, where="m", accepted=False)
    assert refused.value.code == "FORBIDDEN"
    model_trust.check_owners({1001}, 1000, where="m", accepted=True)
