"""Prometheus metrics of this process, in a registry of their own, so that two applications do not mix."""

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_DURATION_BUCKETS_S: Final = (0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 30.0)


class ServiceMetrics:
    """Counts of requests, and gauges of the farm that are set when somebody reads them."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "dynofarm_http_requests_total",
            "Requests by method, route and status.",
            ["method", "route", "status"],
            registry=self.registry,
        )
        self._durations = Histogram(
            "dynofarm_http_request_duration_seconds",
            "Time to answer a request; a claim waits on purpose.",
            ["route"],
            buckets=_DURATION_BUCKETS_S,
            registry=self.registry,
        )
        self._rows = {
            name: Gauge(f"dynofarm_{name}", text, ["state"], registry=self.registry)
            for name, text in (
                ("runs", "Runs by state."),
                ("jobs", "Jobs by state."),
                ("attempts", "Attempts by state."),
                ("devices", "Devices by state."),
            )
        }
        self._outbox = Gauge(
            "dynofarm_outbox_unpublished",
            "Messages promised and not yet published; grows while the broker is away.",
            registry=self.registry,
        )

    def observe_request(self, method: str, route: str, status: int, duration_s: float) -> None:
        """One finished request; status 0 when it was never answered."""
        self._requests.labels(method, route, str(status)).inc()
        self._durations.labels(route).observe(duration_s)

    def set_rows(self, table: str, counts: dict[str, int]) -> None:
        """How many rows of a table are in each state; states without a row vanish."""
        gauge = self._rows[table]
        gauge.clear()
        for word, count in counts.items():
            gauge.labels(word).set(count)

    def set_outbox(self, unpublished: int) -> None:
        self._outbox.set(unpublished)

    def exposition(self) -> bytes:
        """The text format that Prometheus scrapes."""
        return generate_latest(self.registry)
