"""``native``: the scan in C, for a CPU.

Only the rows of open units are computed, in the input and the recurrent products, forwards and
backwards: the cost follows the number of updates, not of events. The state of a closed unit is not
touched. The activations of updates are saved for the backward pass, so that memory follows the
update rate too. The gate's gradient is exact at open *and* closed steps. Proposals at closed steps
are computed in blocks of units, from recurrent products that change only by the units that updated.

It differs from ``reference`` in one respect: at an event, gradients by inputs, weights and states
are summed over the open units of the head, while ``reference`` also multiplies the zeros of the
closed ones. So a number that is not finite, and that only closed units would be multiplied by, does
not make a gradient NaN here.

Results do not depend on the number of threads. The code is ``csrc/scan*``; ``library`` calls it,
``op`` makes operators of it, ``frame`` runs one time step of a stream.
"""

from .frame import Frame as Frame
from .frame import are_equal as are_equal
from .frame import run_frame as run_frame
from .frame import step_number as step_number
from .op import scan as scan
from .support import is_available as is_available
from .support import unsupported as unsupported
