"""Observer `tensorboard`."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from dataflex_events import Observer, RunEnd, RunStart, StepEnd, on, register

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


@register("tensorboard")
@dataclass
class TensorBoard(Observer):
    """Adds what a scalar cannot show to the trainer's TensorBoard folder: the histogram of the applied weights.

    Scalars reach TensorBoard with the trainer's own metrics. Histograms go to the sub-run `dataflex` of the trainer's
    folder, never into the folder itself: TensorBoard supports one writer a folder.

    Does nothing if the trainer does not log to TensorBoard.

    Attributes:
        histograms_every: Steps between two histograms; 0 writes none.
    """

    histograms_every: Annotated[int, Field(ge=0)] = 10

    _writer: SummaryWriter | None = field(default=None, init=False, repr=False)

    @on(RunStart)
    def open(self, event: RunStart) -> None:
        if event.run.tensorboard_dir is not None and self.histograms_every:
            from torch.utils.tensorboard import SummaryWriter  # slow to import; only a run needs it

            self._writer = SummaryWriter(str(event.run.tensorboard_dir / "dataflex"))

    @on(StepEnd, fields=["response_mask"])
    def write(self, event: StepEnd) -> None:
        if self._writer is None or event.weights is None or event.update is None:
            return
        if (event.step.global_step - 1) % self.histograms_every:
            return
        valid = event.weights[event.update.batch["response_mask"].bool()]
        if len(valid):  # an empty histogram is an error in TensorBoard
            self._writer.add_histogram("dataflex/weights", valid, event.step.global_step)
            self._writer.flush()

    @on(RunEnd)
    def close(self, event: RunEnd) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None
