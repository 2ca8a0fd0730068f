import pydantic
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from dataflex_events import ConfigError, EventBus, HandlerError, RunFacts, StepDriver, StepId, make_plan
from dataflex_events.handlers.observers.tensorboard import TensorBoard
from dataflex_events.testing import make_batch

REWEIGHT = {"mechanism": "reweight", "scorer": {"name": "reward"}, "actuator": {"name": "softmax"}}
# Four tokens, of which three are valid: weights .5379 and 1.4621 before they are normalised.
BATCH = make_batch([[0, 2]], lengths=[2, 2], mask=[[1, 1], [1, 0]])


class FakeWriter:
    """Remembers what it was asked to do."""

    def __init__(self, folder):
        self.folder, self.histograms, self.calls = folder, [], []

    def add_histogram(self, tag, values, step):
        self.histograms.append((tag, values.tolist(), step))
        self.calls.append("add")

    def flush(self):
        self.calls.append("flush")

    def close(self):
        self.calls.append("close")


@pytest.fixture
def writers(monkeypatch):
    made = []
    monkeypatch.setattr(
        "torch.utils.tensorboard.SummaryWriter", lambda folder: made.append(FakeWriter(folder)) or made[-1]
    )
    return made


def run(folder, steps, batch=BATCH, block=REWEIGHT, **params):
    plan = make_plan({**block, "tensorboard": params})
    driver = StepDriver(plan.bus(), RunFacts(tensorboard_dir=folder))
    driver.start()
    results = [driver.step(StepId(number), batch) for number in steps]
    driver.end(StepId(max(steps)))
    return results


def test_it_writes_the_applied_weights_of_valid_tokens_and_flushes(writers, tmp_path):
    (result,) = run(tmp_path, [1])
    (writer,) = writers
    assert writer.folder == str(tmp_path / "dataflex")
    assert writer.histograms == [("dataflex/weights", result.weights[:3].tolist(), 1)]
    assert writer.calls == ["add", "flush", "close"]  # nothing is visible before a flush


def test_the_first_step_and_then_every_so_many(writers, tmp_path):
    run(tmp_path, range(1, 22))
    run(tmp_path, range(1, 8), histograms_every=3)
    run(tmp_path, range(1, 4), histograms_every=1)
    assert [[step for *_, step in writer.histograms] for writer in writers] == [[1, 11, 21], [1, 4, 7], [1, 2, 3]]


@pytest.mark.parametrize("every", [0, 1])
def test_without_a_tensorboard_folder_it_does_nothing(writers, every):
    run(None, [1], histograms_every=every)
    assert writers == []


def test_zero_writes_no_histograms(writers, tmp_path):
    run(tmp_path, [1, 10, 11], histograms_every=0)
    assert writers == []


def test_steps_without_weights_write_nothing(writers, tmp_path):
    band = {"mechanism": "select", "scorer": {"name": "group_solve_rate"}, "actuator": {"name": "threshold_band"}}
    results = run(tmp_path, [1], block=band, batch=make_batch([[1, 0], [1, 1]]))
    assert results[0].weights is None
    assert writers[0].histograms == []


def test_a_batch_without_valid_tokens_writes_nothing(writers, tmp_path):
    # TensorBoard raises on an empty histogram.
    run(tmp_path, [1], batch=make_batch([[0, 2]], lengths=[1, 1], mask=[[0], [0]]))
    run(tmp_path, [1], batch=make_batch([]))
    assert [writer.histograms for writer in writers] == [[], []]


def test_the_writer_is_closed_when_the_run_fails(writers, tmp_path):
    plan = make_plan({**REWEIGHT, "tensorboard": {}})
    driver = StepDriver(plan.bus(), RunFacts(tensorboard_dir=tmp_path))
    driver.start()
    driver.end(StepId(3), RuntimeError("out of memory"))
    assert writers[0].calls == ["close"]
    driver.end(StepId(3))  # closing again must not fail either
    assert writers[0].calls == ["close"]


def test_a_failing_writer_follows_the_error_policy(writers, tmp_path, monkeypatch):
    monkeypatch.setattr(FakeWriter, "add_histogram", lambda *args: 1 / 0)
    with pytest.raises(HandlerError, match="handler 'tensorboard' failed at step_end, step 1"):
        run(tmp_path, [1])
    (result,) = run(tmp_path, [1], block={**REWEIGHT, "on_error": "detach"})
    assert result.metrics["dataflex/handler_errors"] == 1.0


def test_real_files_read_back(tmp_path):
    results = run(tmp_path, range(1, 12))
    assert [path.name for path in tmp_path.iterdir()] == ["dataflex"]  # the folder itself belongs to the trainer
    reader = EventAccumulator(str(tmp_path / "dataflex"), size_guidance={"histograms": 0})
    reader.Reload()
    assert reader.Tags()["histograms"] == ["dataflex/weights"]
    events = reader.Histograms("dataflex/weights")
    assert [event.step for event in events] == [1, 11]
    valid = results[0].weights[:3].to(torch.float64)
    for event in events:
        histogram = event.histogram_value
        assert histogram.num == 3
        assert histogram.sum == pytest.approx(float(valid.sum()))
        assert histogram.min == pytest.approx(float(valid.min()))
        assert histogram.max == pytest.approx(float(valid.max()))


def test_two_runs_in_one_process_write_to_their_own_folders(tmp_path):
    plan = make_plan({**REWEIGHT, "tensorboard": {}})
    driver = StepDriver(plan.bus(), RunFacts(tensorboard_dir=tmp_path / "a"))
    other = StepDriver(make_plan({**REWEIGHT, "tensorboard": {}}).bus(), RunFacts(tensorboard_dir=tmp_path / "b"))
    for one in (driver, other):
        one.start()
    driver.step(StepId(1), BATCH)
    for one in (driver, other):
        one.end(StepId(1))
    sizes = [sum(path.stat().st_size for path in (tmp_path / name / "dataflex").iterdir()) for name in "ab"]
    assert sizes[0] > sizes[1]


@pytest.mark.parametrize("every", [-1, 1.5, True, "10", None])
def test_the_interval_must_be_a_natural_number(every):
    with pytest.raises(pydantic.ValidationError):
        TensorBoard(histograms_every=every)


def test_its_mistakes_are_named_by_their_place_in_the_block():
    with pytest.raises(
        ConfigError, match=r"dataflex\.tensorboard\.histograms_every: should be greater than or equal to 0"
    ):
        make_plan({**REWEIGHT, "tensorboard": {"histograms_every": -1}})


def test_its_writer_is_no_parameter():
    with pytest.raises(ConfigError, match=r"dataflex\.tensorboard\._writer: unknown key"):
        make_plan({**REWEIGHT, "tensorboard": {"_writer": None}})
    bus = EventBus()
    bus.attach(TensorBoard())
    assert [event for event, _ in bus.describe()] == ["run_start", "step_end", "run_end"]
