"""Projections: read models that are made of events, kept up to date and rebuilt."""
