"""The page about transactions of the caller's, block by block, on a real database."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.docs.pages import Block, blocks_of

from .servers import Databases, store_of

PAGE = "docs/transactional-enqueue.md"
WHY = "it needs a PostgreSQL server"


@pytest.fixture
def store(server18: Databases) -> Iterator[str]:
    with server18.fresh() as database:
        yield store_of(database)


def run(block: Block, directory: Path, store: str, text: str = "") -> None:
    """Write the file of a block, or run it as a script."""
    path = directory / (block.name or "script.py")
    path.write_text(text or block.text)
    if block.name:
        return
    done = subprocess.run(
        [sys.executable, "-W", "error", path.name],
        cwd=directory,
        env={**os.environ, "HOLDFAST_STORE": store},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, f"{block.place}\n{done.stderr}"


def check(store: str) -> int:
    """Return how many orders there are: each has its job, and each job its order."""
    with psycopg.connect(store) as connection:
        orders = connection.execute("SELECT id FROM orders ORDER BY id").fetchall()
        jobs = connection.execute(
            "SELECT (convert_from(payload, 'UTF8')::json ->> 'order_id')::int "
            "FROM holdfast.jobs ORDER BY 1"
        ).fetchall()
    assert orders == jobs
    return len(orders)


def test_every_recipe_keeps_orders_and_jobs_together(store, tmp_path):
    blocks = blocks_of(PAGE)
    assert all(block.kind == "python" and block.why_not == WHY for block in blocks)
    placed = []
    for block in blocks:
        run(block, tmp_path, store)
        if not block.name:
            placed.append(check(store))
    assert placed == [1, 3, 4, 5, 6], "psycopg, psycopg in asyncio, SQLAlchemy, FastAPI, Django"


def test_every_file_of_the_page_is_used_by_it():
    blocks = blocks_of(PAGE)
    for block in blocks:
        others = "".join(other.text for other in blocks if other is not block)
        stem = Path(block.name).stem
        assert not block.name or f"from {stem} import" in others or f'"{stem}"' in others, (
            block.place
        )


def test_a_recipe_without_its_connection_is_found(store, tmp_path):
    """The negative control: a rollback then leaves a job behind, without its order."""
    jobs, script = blocks_of(PAGE)[:2]
    run(jobs, tmp_path, store)
    run(script, tmp_path, store, script.text.replace(".options(connection=conn)", ""))
    with pytest.raises(AssertionError):
        check(store)
