"""The fuzzer, for a few seconds; ``make soak`` lets it run for longer."""

import os
import re
import subprocess
import sys
from pathlib import Path

SECONDS = os.environ.get("HOLDFAST_TEST_FUZZ_SECONDS")
LENGTH = f"-max_total_time={SECONDS}" if SECONDS else "-runs=1200"
"""By default a number of inputs, however long a busy machine takes for them."""
FUZZER = Path(__file__).with_name("fuzz_journal.py")


BROKEN = """
import sys
sys.path.insert(0, {folder!r})
import fuzz_journal
from holdfast.engines.journal.wal import recovery
from holdfast.engines.journal.wal.schema import RecordReader
recovery.FrameApplier.__call__ = lambda self, frame, name, offset: [
    self._state.fold(effect, seq)
    for seq, effect in enumerate(
        RecordReader(name).effects(frame.payload, frame.schema), frame.first_seq
    )
]
fuzz_journal.main()
"""


def fuzz(script: Path, tmp_path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    limits = ["-rss_limit_mb=256", "-timeout=20", f"-artifact_prefix={tmp_path}/"]
    # Through a shell that forks: a process that is started directly begins with the peak memory
    # of the one that started it, and the limit would be the test runner's.
    shell = ["sh", "-c", '"$@"; exit $?', "sh"]
    corpus = str(tmp_path / "corpus")
    return subprocess.run(
        [*shell, sys.executable, str(script), corpus, *limits, *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )


def test_stored_bytes_of_any_kind_raise_typed_errors_only(tmp_path):
    done = fuzz(FUZZER, tmp_path, LENGTH)
    assert done.returncode == 0, done.stdout[-4_000:] + done.stderr[-2_000:]
    runs = re.search(r"Done (\d+) runs", done.stderr)
    assert runs is not None, done.stderr[-2_000:]
    assert int(runs[1]) > 1_000


def test_control_the_fuzzer_finds_a_decoder_that_lets_a_raw_error_through(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text(BROKEN.format(folder=str(FUZZER.parent)))
    done = fuzz(broken, tmp_path, "-runs=12000")
    assert done.returncode != 0
    assert "Uncaught Python exception" in done.stdout + done.stderr
