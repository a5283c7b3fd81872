"""When periodic work was last begun, whoever did it."""

from datetime import datetime

from sqlalchemy import String
from sqlalchemy.orm import Mapped, mapped_column

from controller.db.models.columns import Row, UtcDateTime


class PeriodicMarkRow(Row):
    """One periodic task and when it began last: of several schedulers, one does the work of each period."""

    __tablename__ = "periodic_marks"

    name: Mapped[str] = mapped_column(String(64), primary_key=True)
    last_run_at: Mapped[datetime] = mapped_column(UtcDateTime)
