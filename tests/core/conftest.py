from hypothesis import settings

# A shared or busy machine must not fail a test for being slow.
settings.register_profile("dataflex", deadline=None, max_examples=50)
settings.load_profile("dataflex")
