"""When an iPhone may start a run: thresholds of heat, charge and rest, chosen in the settings."""

from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Percent = Annotated[float, Field(ge=0, le=100)]
Celsius = Annotated[float, Field(ge=-20, le=80)]
NonNegative = Annotated[float, Field(ge=0, le=86_400)]


class StartPolicy(BaseModel):
    """The thresholds; all may be chosen. A floor and a level to resume from make one gate each."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    charge_floor_percent: Percent = 40.0
    charge_resume_percent: Percent = 50.0
    warm_celsius: Celsius = 35.0
    """Of the battery: the only temperature that is told before the app runs."""
    cool_celsius: Celsius = 32.0
    settle_s: NonNegative = 30.0
    """After heat, it must look cool for this long."""
    cool_down_s: NonNegative = 30.0
    """Rest after every run, whatever the sensors say: the chip throttles before its system says so."""
    reading_max_age_s: NonNegative = 120.0
    """An older reading says nothing."""
    abort_battery_percent: Percent = 5.0
    """A run on battery ends below this, before the device goes down in the middle."""

    @model_validator(mode="after")
    def _levels_are_ordered(self) -> Self:
        if self.charge_resume_percent < self.charge_floor_percent:
            raise ValueError("charge_resume_percent lies below charge_floor_percent")
        if self.cool_celsius > self.warm_celsius:
            raise ValueError("cool_celsius lies above warm_celsius")
        if self.abort_battery_percent > self.charge_floor_percent:
            raise ValueError("abort_battery_percent lies above charge_floor_percent")
        return self
