"""Tables that stay readable on a narrow screen: there a row of many columns becomes a card."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from dash import html
from dash.development.base_component import Component

SLIM_COLUMNS: Final = 4
"""A table of no more columns fits a narrow screen as it is."""

Content = Component | str | Sequence[Component | str]


@dataclass(frozen=True, slots=True)
class Column:
    """A column. is_number: set to the right, with digits of one width."""

    title: str
    is_number: bool = field(default=False, kw_only=True)


def table(columns: Sequence[Column], rows: Sequence[Sequence[Content]], caption: str) -> html.Div:
    """Rows as wide as `columns`. The caption names the table for screen readers."""
    head = html.Thead(
        html.Tr([html.Th(column.title, scope="col", className=_kind(column)) for column in columns])
    )
    body = [
        html.Tr([_cell(column, content) for column, content in zip(columns, row, strict=True)])
        for row in rows
    ]
    kind = "table" if len(columns) > SLIM_COLUMNS else "table slim"
    return html.Div(
        html.Table([html.Caption(caption), head, html.Tbody(body)], className=kind), className="table-frame"
    )


def _cell(column: Column, content: Content) -> html.Td:
    inner = html.Div(content if isinstance(content, str | Component) else list(content))
    label: dict[str, Any] = {"data-label": column.title}
    return html.Td(inner, className=_kind(column), **label)


def _kind(column: Column) -> str:
    return "number" if column.is_number else "text"
