"""``import surnn.hf`` registers surnn's models with Hugging Face's Auto classes.

The code is in :mod:`surnn.deploy.hf`; this short name is the public one. It needs ``transformers``:
``pip install 'surnn[hf]'``.
"""

try:
    from surnn.deploy.hf import (
        State,
        SuRNNConfig,
        SuRNNForCausalLM,
        SuRNNForSequenceClassification,
        SuRNNOutput,
        to_folder,
        tokenizer_of,
    )
except ModuleNotFoundError as error:
    from surnn.errors import missing_extra

    raise missing_extra(error, "surnn.hf") from error

__all__ = [
    "State",
    "SuRNNConfig",
    "SuRNNForCausalLM",
    "SuRNNForSequenceClassification",
    "SuRNNOutput",
    "to_folder",
    "tokenizer_of",
]
