"""The web application: each request changes a row and appends what happened.

On PostgreSQL both are one transaction: there is no row without its event, and no event without its
row. Embedded there are two stores: the event is durable first, and a crash before the commit of the
row leaves an event of something that did not happen.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Annotated, TypeVar

from fastapi import Body, Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import JSONResponse
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from holdfast import NoOwner
from library import app
from library.events import (
    BlockWritten,
    BookAdded,
    BookRenamed,
    BookshelfAdded,
    BookTagged,
    LibraryOpened,
    Title,
)
from library.tables import (
    ON_POSTGRESQL,
    Base,
    Block,
    Book,
    Bookshelf,
    Library,
    Tag,
    engine,
    sessions,
)

T = TypeVar("T", Library, Bookshelf, Book)
Text = Annotated[str, Body(embed=True, min_length=1)]


@asynccontextmanager
async def lifespan(_web: FastAPI) -> AsyncIterator[None]:
    """Make the tables that are missing; at the end, leave the store."""
    Base.metadata.create_all(engine)
    yield
    await app.close()
    engine.dispose()


web = FastAPI(title="Library", lifespan=lifespan)


@web.middleware("http")
async def act_as_the_user(
    request: Request, call_next: Callable[[Request], Awaitable[Response]]
) -> Response:
    """Stamp who acts on every event of the request. A header stands for a real login here."""
    user = request.headers.get("X-User", "Guest")
    with app.acting_as("user", user.lower(), user, request_id=request.headers.get("X-Request", "")):
        return await call_next(request)


@web.exception_handler(NoOwner)
async def no_worker(_request: Request, error: NoOwner) -> JSONResponse:
    """Say what to start, if nothing runs on the embedded store."""
    return JSONResponse({"detail": str(error)}, 503)


def begun() -> Iterator[Session]:
    """Yield the transaction of a request: it is committed before the response is sent."""
    with sessions.begin() as session:
        yield session


Transaction = Annotated[Session, Depends(begun, scope="function")]


def find(session: Session, kind: type[T], number: int) -> T:
    """Return a row, or answer 404."""
    found = session.get(kind, number)
    if found is None:
        raise HTTPException(404, f"no {kind.__name__.lower()} {number}")
    return found


def record(session: Session, event: object, scope: str) -> None:
    """Append an event; on PostgreSQL it is part of the transaction."""
    app.append_sync(event, scope=scope, connection=session if ON_POSTGRESQL else None)


@web.post("/libraries", status_code=201)
def open_library(name: Text, session: Transaction) -> dict[str, int]:
    """Open a library."""
    library = Library(name=name)
    session.add(library)
    session.flush()  # gives it its id
    record(session, LibraryOpened(library.id, name), library.scope)
    return {"id": library.id}


@web.post("/libraries/{library_id}/bookshelves", status_code=201)
def add_bookshelf(library_id: int, name: Text, session: Transaction) -> dict[str, int]:
    """Put up a bookshelf."""
    shelf = Bookshelf(library=find(session, Library, library_id), name=name)
    session.add(shelf)
    session.flush()
    record(session, BookshelfAdded(shelf.id, library_id, name), shelf.scope)
    return {"id": shelf.id}


@web.post("/bookshelves/{bookshelf_id}/books", status_code=201)
def add_book(bookshelf_id: int, title: Text, session: Transaction) -> dict[str, int]:
    """Put a book on a bookshelf."""
    book = Book(bookshelf=find(session, Bookshelf, bookshelf_id), title=title)
    session.add(book)
    session.flush()
    record(session, BookAdded(book.id, bookshelf_id, title), book.scope)
    return {"id": book.id}


@web.patch("/books/{book_id}", status_code=204)
def rename_book(book_id: int, title: Text, session: Transaction) -> None:
    """Give a book another title."""
    book = find(session, Book, book_id)
    before, book.title = book.title, title
    record(session, BookRenamed(book_id, Title(before), Title(title)), book.scope)


@web.post("/books/{book_id}/blocks", status_code=201)
def write_block(book_id: int, text: Text, session: Transaction) -> dict[str, int]:
    """Add a block of text to a book."""
    book = find(session, Book, book_id)
    block = Block(book_id=book_id, text=text)
    session.add(block)
    session.flush()
    record(session, BlockWritten(block.id, book_id, book.title, text, len(text)), book.scope)
    return {"id": block.id}


@web.post("/books/{book_id}/tags", status_code=201)
def tag_book(book_id: int, tag: Text, session: Transaction) -> None:
    """Give a book a tag."""
    book = find(session, Book, book_id)
    session.add(Tag(book_id=book_id, name=tag))
    try:
        session.flush()
    except IntegrityError:
        raise HTTPException(409, f"book {book_id} has the tag {tag}") from None
    record(session, BookTagged(book_id, book.title, tag), book.scope)


@web.get("/bookshelves/{bookshelf_id}/books")
async def books(bookshelf_id: int) -> list[dict[str, object]]:
    """Return the cards of the books on a bookshelf: rows of the projection."""
    return [
        dict(row)
        for row in await app.rows("book_cards", {"bookshelf_id": bookshelf_id}, order="title")
    ]


@web.get("/books/{book_id}/history")
def history(book_id: int, session: Transaction) -> list[dict[str, object]]:
    """Return what happened to a book, the latest first: entries of the chronicle."""
    scope = find(session, Book, book_id).scope
    entries = app.rows_sync("chronicle", {"scope": scope}, order="-occurred_at")
    return [{"at": entry["occurred_at"], "what": entry["text"]} for entry in entries]
