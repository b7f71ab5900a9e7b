"""What tests of this directory get, beside servers."""

from collections.abc import Iterator

import psycopg
import pytest

from .servers import Databases, store_of
from .shops import Shop


@pytest.fixture(scope="session")
def shop_database(server18: Databases) -> Iterator[str]:
    """One database for all tests of transactions of others; each begins with no jobs."""
    with server18.fresh() as database:
        yield store_of(database)


@pytest.fixture
def shop(shop_database: str) -> Iterator[Shop]:
    with psycopg.connect(shop_database, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '5s'")
        connection.execute("TRUNCATE holdfast.jobs, holdfast.dead, holdfast.history")
        connection.execute("DROP TABLE IF EXISTS orders")
        connection.execute("CREATE TABLE orders (id int PRIMARY KEY)")
    made = Shop(shop_database)
    yield made
    made.app.close_sync()
