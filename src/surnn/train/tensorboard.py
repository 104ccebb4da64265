"""TensorBoard logs (an extra)."""

from typing import Any

from surnn.errors import MissingExtra

from .loggers import RunInfo, flatten_scalars


class TensorBoardLogger:
    """Writes the log for TensorBoard into the run's folder; a run without one has no such log.

    Args:
        run: the run.
    """

    def __init__(self, run: RunInfo) -> None:
        self.writer: Any = None
        if run.folder is not None:
            # Events that a killed process wrote past the checkpoint will be written again.
            self.writer = _summary_writer()(str(run.folder), purge_step=run.step + 1)

    @staticmethod
    def check() -> None:
        """Raise MissingExtra if TensorBoard is not installed."""
        _summary_writer()

    def log(self, record: dict[str, Any]) -> None:
        """Write each number of a line as a scalar."""
        if self.writer is not None:
            for name, value in flatten_scalars(record):
                self.writer.add_scalar(f"{record['kind']}/{name}", value, record["step"])

    def close(self) -> None:
        """Write buffered scalars."""
        if self.writer is not None:
            self.writer.close()


def _summary_writer() -> Any:
    """The class of TensorBoard's writer."""
    try:
        from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("tensorboard", "train.tensorboard") from error
    return SummaryWriter
