from hypothesis import HealthCheck, settings

# Runs share their examples and have no deadline: a loaded machine must not make a property fail.
settings.register_profile("kafkaprod", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("kafkaprod")
