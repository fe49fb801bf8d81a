"""What the service believes of a registry, and what one tenant learns of another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zoos
from service_bench import REPOSITORY, ZOO, Bench, build, serving, settings

from edl_builder.config.access import Access, Token, hash_token
from edl_builder.core.build_request import Tenant
from edl_builder.core.identifiers import Caller, Key
from edl_builder.core.ports import RegistryImage
from edl_builder.core.references import Reference, key_tag

EVIL = RegistryImage("sha256:" + "e" * 64, 666)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    with serving(settings(tmp_path / "state")) as found:
        yield found


def _put_evil(bench: Bench, key: str) -> None:
    registry, _, path = REPOSITORY.partition("/")
    bench.registry.put(Reference(registry, path, key_tag(Key(key))), EVIL)


def test_an_image_that_another_user_pushed_under_the_key_is_not_served(
    tmp_path: Path, bench: Bench
) -> None:
    """Each user who may push to the repository can set any of its tags."""
    with serving(settings(tmp_path / "elsewhere")) as known, known.stub() as stub:
        key = build(stub, zoos.tar(ZOO)).last.result.key
    _put_evil(bench, key)
    with bench.stub() as stub:
        first = build(stub, zoos.tar(ZOO), tag="v1").last.result
        assert first.key == key
        assert not first.reused
        assert EVIL.digest not in first.image
        _put_evil(bench, key)
        again = build(stub, zoos.tar(ZOO), tag="v2").last.result
        assert again.reused
        assert again.image == first.image
    registry, _, path = REPOSITORY.partition("/")
    for tag in ("v1", "v2"):
        found = bench.registry.find(Reference(registry, path, tag))
        assert found is not None
        assert found.digest != EVIL.digest


def test_an_image_that_another_user_puts_under_the_tag_during_a_push_is_not_served(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    push = bench.engine.push

    def push_and_lose(name: Reference, *others: Any) -> str:
        digest = push(name, *others)
        bench.registry.put(name, EVIL)
        return digest

    monkeypatch.setattr(bench.engine, "push", push_and_lose)
    with bench.stub() as stub:
        assert EVIL.digest not in build(stub, zoos.tar(ZOO)).last.result.image


def test_a_registry_that_gives_another_image_for_a_digest_is_not_believed(bench: Bench) -> None:
    with bench.stub() as stub:
        first = build(stub, zoos.tar(ZOO)).last.result
        bench.registry._images[REPOSITORY][first.image.partition("@")[2]] = EVIL
        again = build(stub, zoos.tar(ZOO)).last.result
    assert not again.reused
    assert again.image == first.image


def test_what_was_built_is_known_after_a_restart(tmp_path: Path) -> None:
    config = settings(tmp_path / "state")
    with serving(config) as bench, bench.stub() as stub:
        first = build(stub, zoos.tar(ZOO)).last.result
        _put_evil(bench, first.key)
        engine = bench.engine
    with serving(config, engine) as bench, bench.stub() as stub:
        again = build(stub, zoos.tar(ZOO)).last.result
    assert again.reused
    assert again.image == first.image


def test_an_image_that_is_gone_is_built_again(bench: Bench) -> None:
    with bench.stub() as stub:
        build(stub, zoos.tar(ZOO))
        bench.registry.forget(REPOSITORY)
        assert not build(stub, zoos.tar(ZOO)).last.result.reused


def test_a_tenant_does_not_learn_what_another_has_installed(tmp_path: Path) -> None:
    """Neither from the count of cached layers, nor from the time: its layers are its own."""
    tenants = {name: Tenant(Caller(name), ("registry.test/*",), ()) for name in ("ann", "bob")}
    access = Access(tokens={hash_token(name): Token(tenant) for name, tenant in tenants.items()})
    with serving(replace(settings(tmp_path / "s"), access=access)) as bench, bench.stub() as stub:

        def result_of(name: str, repository: str, code: str) -> tuple[int, bool]:
            archive = zoos.tar({**ZOO, "m.py": code})
            token = (("authorization", f"Bearer {name}"),)
            told = build(stub, archive, token, repository=f"registry.test/{repository}")
            return told.last.result.cached_layers, told.last.result.reused

        assert result_of("ann", "a", "x = 1") == (0, False)
        assert result_of("ann", "a2", "x = 2")[0] > 2
        # The very same zoo, also for the same repository.
        assert result_of("bob", "b", "x = 1") == (0, False)
        cached, reused = result_of("bob", "a", "x = 1")
        assert not reused
        assert cached > 2  # of its own build just now
