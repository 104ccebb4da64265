"""Training: the loop, one optimizer step, evaluation, schedules, distributed processes."""
