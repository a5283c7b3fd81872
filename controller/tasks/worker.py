"""The worker of a distributed farm: `celery -A controller.tasks.worker worker`, and `... beat` beside it.

Settings come from the environment; the database and the broker are those of the API.
"""

from controller.db.session import open_sessions
from controller.settings import Settings
from controller.tasks.application import build_celery
from controller.tasks.context import TaskContext

_settings = Settings()
app = build_celery(TaskContext(open_sessions(_settings.resolved_database_url), _settings))
