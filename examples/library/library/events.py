"""What can happen in a library: the event types, each declared once."""

from dataclasses import dataclass

from holdfast import Holdfast

app = Holdfast()  # on DATABASE_URL if it is set, otherwise in ./data


@app.event("library.opened", entity="library", text="{actor} opened the library {name}")
@dataclass
class LibraryOpened:
    """A library begins."""

    library_id: int
    name: str


@app.event("bookshelf.added", entity="bookshelf", text="{actor} put up the bookshelf {name}")
@dataclass
class BookshelfAdded:
    """A library has another bookshelf."""

    bookshelf_id: int
    library_id: int
    name: str


# Events of one book, whatever they are about, have the same key: they are applied in order.
@app.event("book.added", entity="book", key="book:{book_id}", text="{actor} added {title}")
@dataclass
class BookAdded:
    """A book stands on a bookshelf."""

    book_id: int
    bookshelf_id: int
    title: str


@dataclass
class Title:
    """What a book is called."""

    title: str


@app.event(
    "book.renamed",
    entity="book",
    key="book:{book_id}",
    change="before_and_after",
    text="{actor} renamed {before.title} to {after.title}",
)
@dataclass
class BookRenamed:
    """A book has another title."""

    book_id: int
    before: Title
    after: Title


@app.event(
    "block.written",
    entity="block",
    key="book:{book_id}",
    text="{actor} wrote {characters} characters in {title}",
)
@dataclass
class BlockWritten:
    """A book has another block of text."""

    block_id: int
    book_id: int
    title: str
    text: str
    characters: int


@app.event(
    "book.tagged", entity="book", key="book:{book_id}", text="{actor} tagged {title} as {tag}"
)
@dataclass
class BookTagged:
    """A book has another tag."""

    book_id: int
    title: str
    tag: str
