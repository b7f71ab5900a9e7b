"""A small library: its application for ``holdfast run library``, with events and projections."""

from library.events import app
from library.projections import book_cards

__all__ = ["app", "book_cards"]
