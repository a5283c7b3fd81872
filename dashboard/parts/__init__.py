"""Pieces of pages: badges, tables, notices, panels. They know dash and no REST."""
