"""Using a trained model: the C engine, exports, text generation, Hugging Face."""
