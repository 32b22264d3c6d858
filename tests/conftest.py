"""Settings of all tests."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "gate",
    derandomize=True,  # a gate says the same twice; `python -m tests.property` looks further
    database=None,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine is no defect
)
settings.load_profile("gate")
