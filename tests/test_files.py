import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asym import files


def test_a_written_file_is_whole_and_alone(tmp_path: Path):
    files.write_text(tmp_path / "a" / "b.txt", "é\n")
    assert (tmp_path / "a" / "b.txt").read_bytes() == "é\n".encode()
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["b.txt"]


def test_a_failed_write_leaves_the_old_file_and_no_rest(tmp_path: Path):
    path = tmp_path / "a.txt"
    files.write_text(path, "old")

    def half(temporary: Path) -> None:
        temporary.write_text("ne")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        files.replace_file(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_written_file_has_the_usual_permissions(tmp_path: Path):
    def private(temporary: Path) -> None:
        temporary.touch(mode=0o600)

    files.replace_file(tmp_path / "a", private)
    (tmp_path / "b").touch()
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode


def test_the_checksum_is_sha256_of_the_bytes(tmp_path: Path):
    (tmp_path / "a").write_bytes(b"abc")
    expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # FIPS 180-2, appendix B.1
    assert files.sha256_file(tmp_path / "a") == expected


def test_a_temporary_file_is_abandoned_when_its_process_is_gone(tmp_path: Path):
    code = "from asym.files import temporary_name; print(temporary_name('x'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    theirs, ours, old = (
        tmp_path / done.stdout.strip(),
        tmp_path / files.temporary_name("x"),
        tmp_path / ".tmp-mine",
    )
    for path in (theirs, ours, old):
        path.touch()
    assert files.is_abandoned(theirs)
    assert not files.is_abandoned(ours)
    assert not files.is_abandoned(old)  # not a name of ours
    assert not files.is_abandoned(tmp_path / files.temporary_name("never written"))
    two_days_ago = time.time() - 2 * 86_400
    os.utime(ours, (two_days_ago, two_days_ago))
    assert files.is_abandoned(ours)
