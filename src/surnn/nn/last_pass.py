"""Values of the last forward pass that a module keeps, for penalties and statistics."""

from typing import Any

from torch import Tensor


class LastPass(tuple[Tensor, ...]):
    """Values of one pass. They hold its graph: copies and pickles of them are empty."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "LastPass":
        return LastPass()

    def __reduce__(self) -> Any:
        return LastPass, ()
