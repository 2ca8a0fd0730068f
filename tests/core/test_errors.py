import pickle

from dataflex_events import ConfigError, ConfigIssue, DataflexError, FieldError, HandlerError, HandlerOutputError
from dataflex_events.errors import VerificationError, nearest


def test_a_configuration_error_lists_every_mistake():
    issues = [ConfigIssue("dataflex.mechanism", "is missing"), ConfigIssue("dataflex.scorer.name", "unknown")]
    assert str(ConfigError(issues)) == (
        "2 mistakes in the dataflex configuration:\n"
        "  - dataflex.mechanism: is missing\n"
        "  - dataflex.scorer.name: unknown"
    )
    assert str(ConfigError(issues[:1])).startswith("1 mistake in the dataflex configuration:\n")


def test_a_configuration_error_survives_pickling():
    # Ray sends errors between processes as pickles.
    error = ConfigError([ConfigIssue("dataflex.mechanism", "is missing")])
    copy = pickle.loads(pickle.dumps(error))
    assert copy.issues == error.issues
    assert str(copy) == str(error)


def test_one_except_clause_catches_everything():
    for kind in (ConfigError, FieldError, HandlerError, HandlerOutputError, VerificationError):
        assert issubclass(kind, DataflexError)


def test_nearest():
    known = ["reward", "group_solve_rate"]
    assert nearest("rewrd", known) == " (did you mean 'reward'?)"
    assert nearest("zzz", known) == " (known: group_solve_rate, reward)"
    assert nearest("zzz", known, listing=False) == ""
    assert nearest("zzz", []) == ""
