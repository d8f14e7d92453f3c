"""Self-distillation: data that a target writes itself, and drafters trained on it."""
