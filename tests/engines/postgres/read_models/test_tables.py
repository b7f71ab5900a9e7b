"""Tables and views of projections on PostgreSQL, and what is in their way."""

import asyncio
import contextlib

import psycopg
import pytest
from msgspec.structs import replace
from psycopg.conninfo import make_conninfo

from holdfast.engines.postgres.engine import PostgresEngine
from holdfast.engines.postgres.options import PostgresOptions
from holdfast.engines.postgres.schema.migrate import migrate
from holdfast.engines.read_models.contract import Filled, FillPosition
from holdfast.model.errors import InvalidInput, Unavailable
from holdfast.model.read_model import ColumnType, ReadModel

TABLE = ReadModel(
    name="books",
    columns={"id": ColumnType.TEXT, "title": ColumnType.TEXT, "year": ColumnType.INTEGER},
    key=("id",),
    indexes=(("title",),),
    search=("title",),
)
SLIM = replace(TABLE, columns={"id": ColumnType.TEXT, "title": ColumnType.TEXT})


def sql(url, text):
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET lock_timeout = '5s'")
        cursor = connection.execute(text.encode())
        return cursor.fetchall() if cursor.description else []


@contextlib.asynccontextmanager
async def read_models(url, **options):
    engine = await PostgresEngine.open(url, options=PostgresOptions(**options))
    try:
        yield engine.read_models
    finally:
        await engine.close()


async def put(models, generation, table=TABLE, **row):
    def fill(rows):
        rows.upsert(row)
        return Filled(FillPosition(rebuild="r"))

    expected = await models.position(table, generation)
    await models.fill(table, generation, fill, expected=expected)


@pytest.mark.parametrize("name", ["books", "books__g1"])
@pytest.mark.parametrize("kind", ["TABLE {} (id int)", "VIEW {} AS SELECT 1 AS id"])
async def test_what_holdfast_did_not_make_is_refused_by_name_and_left_as_it_is(
    server18, name, kind
):
    with server18.fresh() as url:
        sql(url, f"CREATE {kind.format(f'public.{name}')}")
        async with read_models(url) as models:
            with pytest.raises(InvalidInput, match=rf"public\.{name} exists.*projection_schema"):
                await models.create(TABLE, 1)
        assert sql(url, "SELECT relname FROM pg_class WHERE relname LIKE 'books%'") == [(name,)]
        async with read_models(url, projection_schema="shown") as models:
            await models.create(TABLE, 1)
            await models.publish(TABLE, 1)
            await put(models, 1, id="a")
        assert sql(url, "SELECT id FROM shown.books") == [("a",)]


async def test_a_view_of_the_outbox_in_the_way_is_refused(server18):
    with server18.fresh() as url:
        sql(url, "CREATE TABLE public.books_outbox_events (id int)")
        async with read_models(url) as models:
            with pytest.raises(InvalidInput, match="books_outbox_events"):
                await models.publish_outbox("books")


async def test_the_tables_of_another_holdfast_are_refused(server18):
    with server18.fresh() as url:
        migrate(url, schema="second")
        async with read_models(url) as models:
            await models.create(TABLE, 1)
        async with read_models(url, schema="second") as models:
            with pytest.raises(InvalidInput, match=r"Holdfast \(schema second\) did not make it"):
                await models.create(TABLE, 1)
            with pytest.raises(InvalidInput, match="did not make it"):
                await models.drop(TABLE, 1)
            assert await models.generations(TABLE) == []
        assert sql(url, "SELECT count(*) FROM books__g1") == [(0,)]


async def test_without_the_right_to_create_it_says_what_to_grant(server18):
    with server18.fresh() as url:
        role = "no_creator"
        sql(
            url,
            f"DROP ROLE IF EXISTS {role}; CREATE ROLE {role} LOGIN;"
            f"GRANT USAGE ON SCHEMA holdfast TO {role};"
            f"GRANT ALL ON ALL TABLES IN SCHEMA holdfast TO {role};"
            f"GRANT ALL ON ALL SEQUENCES IN SCHEMA holdfast TO {role}",
        )
        try:
            async with read_models(make_conninfo(url, user=role)) as models:
                with pytest.raises(Unavailable, match="GRANT CREATE, USAGE ON SCHEMA public TO no"):
                    await models.create(TABLE, 1)
                sql(url, f"GRANT CREATE ON SCHEMA public TO {role}")
                await models.create(TABLE, 1)
                await models.publish(TABLE, 1)
        finally:
            sql(url, f"DROP OWNED BY {role}; DROP ROLE {role}")


async def test_readers_of_the_name_see_the_generation_that_was_published_last(server18):
    with server18.fresh() as url:
        async with read_models(url) as models:
            for generation in (1, 2):
                await models.create(TABLE, generation)
                await put(models, generation, id=f"g{generation}", year=generation)
            await models.publish(TABLE, 1)
            assert sql(url, "SELECT * FROM books") == [("g1", None, 1)]
            await models.publish(TABLE, 2)
            assert sql(url, "SELECT * FROM books") == [("g2", None, 2)]
            await models.drop(TABLE, 1)
            assert sql(url, "SELECT * FROM books") == [("g2", None, 2)]
            await models.drop(TABLE, 2)
        assert sql(url, "SELECT relname FROM pg_class WHERE relname LIKE 'books%'") == []


async def test_a_view_with_other_columns_keeps_the_rights_on_it(server18):
    with server18.fresh() as url:
        sql(url, "DROP ROLE IF EXISTS analyst; CREATE ROLE analyst")
        try:
            async with read_models(url) as models:
                await models.create(TABLE, 1)
                await models.publish(TABLE, 1)
                sql(url, "GRANT SELECT ON books TO analyst; GRANT SELECT ON books TO PUBLIC")
                await models.create(SLIM, 2)
                await models.publish(SLIM, 2)
                assert sql(
                    url,
                    "SELECT has_table_privilege('analyst', 'books', 'SELECT'), relacl::text"
                    " FROM pg_class WHERE relname = 'books'",
                ) == [(True, "{holdfast=arwdDxtm/holdfast,analyst=r/holdfast,=r/holdfast}")]
                sql(url, "CREATE VIEW of_people AS SELECT id FROM books")
                with pytest.raises(InvalidInput, match=r"view holdfast\.of_people depends on"):
                    await models.publish(replace(SLIM, columns={"id": ColumnType.TEXT}), 2)
                assert sql(url, "SELECT * FROM books") == []
        finally:
            sql(url, "DROP OWNED BY analyst; DROP ROLE analyst")


async def test_to_publish_holds_no_reader_up_while_it_waits_for_one(server18):
    with server18.fresh() as url:
        async with read_models(url) as models:
            for generation in (1, 2):
                await models.create(TABLE, generation)
            await models.publish(TABLE, 1)
            with psycopg.connect(url) as reader:
                reader.execute("SELECT * FROM books")
                swap = asyncio.create_task(models.publish(TABLE, 2))
                waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
                while (await asyncio.to_thread(sql, url, waiting)) == [(0,)]:
                    assert not swap.done()
                assert await asyncio.to_thread(sql, url, "SELECT * FROM books") == []
                assert not swap.done()
            await swap
        [[comment]] = sql(url, "SELECT obj_description('books'::regclass)")
        assert comment == "Made by Holdfast (schema holdfast): generation 2 of books"


async def test_what_is_as_declared_is_not_locked(server18):
    with server18.fresh() as url:
        async with read_models(url) as models:
            await models.create(TABLE, 1)
            await models.publish(TABLE, 1)
            await models.publish_outbox("books")
            with psycopg.connect(url) as reader:
                reader.execute("LOCK TABLE books, books__g1, holdfast.jobs IN SHARE MODE")
                await models.create(TABLE, 1)
                await models.publish(TABLE, 1)
                await models.publish_outbox("books")


async def test_another_key_is_refused(server18):
    with server18.fresh() as url:
        async with read_models(url) as models:
            await models.create(TABLE, 1)
            with pytest.raises(InvalidInput, match="of books__g1 is id"):
                await models.create(replace(TABLE, key=("id", "year")), 1)


async def test_long_names_of_indexes_stay_apart(server18):
    long = [f"{'column_' * 5}{number}" for number in range(3)]
    table = replace(
        TABLE,
        name="n" * 40,
        columns={"id": ColumnType.TEXT, "title": ColumnType.TEXT}
        | dict.fromkeys(long, ColumnType.TEXT),
        indexes=((long[0], long[1]), (long[0], long[2])),
    )
    with server18.fresh() as url:
        async with read_models(url) as models:
            for _twice in range(2):
                await models.create(table, 10)
        found = sql(url, "SELECT count(*) FROM pg_indexes WHERE tablename LIKE 'nnn%__g10'")
        assert found == [(4,)]
