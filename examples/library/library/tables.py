"""The library's own tables, by SQLAlchemy: what is true now. The events tell how it came to be."""

import os

from sqlalchemy import ForeignKey, UniqueConstraint, create_engine, make_url
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship, sessionmaker

DATABASE_URL = os.environ.get("DATABASE_URL")
ON_POSTGRESQL = DATABASE_URL is not None

engine = create_engine(
    make_url(DATABASE_URL).set(drivername="postgresql+psycopg")
    if DATABASE_URL is not None
    else "sqlite:///library.sqlite"
)
sessions = sessionmaker(engine)


class Base(DeclarativeBase):
    """The tables of the library."""


class Library(Base):
    """It has bookshelves."""

    __tablename__ = "libraries"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]

    @property
    def scope(self) -> str:
        """Where it is: each thing is inside another one."""
        return f"library:{self.id}"


class Bookshelf(Base):
    """It has books."""

    __tablename__ = "bookshelves"
    id: Mapped[int] = mapped_column(primary_key=True)
    library_id: Mapped[int] = mapped_column(ForeignKey(Library.id))
    name: Mapped[str]
    library: Mapped[Library] = relationship()

    @property
    def scope(self) -> str:
        """Where it is."""
        return f"{self.library.scope}/bookshelf:{self.id}"


class Book(Base):
    """It has blocks of text, and tags."""

    __tablename__ = "books"
    id: Mapped[int] = mapped_column(primary_key=True)
    bookshelf_id: Mapped[int] = mapped_column(ForeignKey(Bookshelf.id))
    title: Mapped[str]
    bookshelf: Mapped[Bookshelf] = relationship()

    @property
    def scope(self) -> str:
        """Where it is, such as ``library:42/bookshelf:3/book:7``."""
        return f"{self.bookshelf.scope}/book:{self.id}"


class Block(Base):
    """A part of the text of a book."""

    __tablename__ = "blocks"
    id: Mapped[int] = mapped_column(primary_key=True)
    book_id: Mapped[int] = mapped_column(ForeignKey(Book.id))
    text: Mapped[str]


class Tag(Base):
    """A word by which a book is found; it has each once."""

    __tablename__ = "tags"
    __table_args__ = (UniqueConstraint("book_id", "name"),)
    id: Mapped[int] = mapped_column(primary_key=True)
    book_id: Mapped[int] = mapped_column(ForeignKey(Book.id))
    name: Mapped[str]
