"""The README's code runs, and what documents name exists."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent


def test_the_code_in_the_readme_runs(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert blocks
    for number, block in enumerate(blocks):
        script = tmp_path / f"block{number}.py"
        script.write_text(block)
        done = subprocess.run(
            [sys.executable, "-W", "error", str(script)],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "welcome {'user_id': 7} attempt 1" in done.stdout
        assert "completed=1" in done.stdout


def test_every_file_that_a_document_links_to_exists():
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("bench/*.md")]
    assert len(documents) > 10
    for document in documents:
        for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
            if "://" not in target:
                assert (document.parent / target).exists(), f"{document.name} links to {target}"


def test_every_test_that_reliability_names_exists():
    text = (ROOT / "RELIABILITY.md").read_text()
    for path in re.findall(r"`(tests/[a-z_/]+(?:\.py)?)", text):
        assert (ROOT / path).exists(), path
    sources = "".join(path.read_text() for path in (ROOT / "tests" / "crash").glob("*.py"))
    for name in re.findall(r"(test_[a-z_]+)_…", text):
        assert name in sources, name
