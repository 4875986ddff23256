"""GPUs and language models, and what follows from them: KV capacity and an engine's default limits."""

from fastsim.hardware.capacity import engine_limits, kv_capacity_tok
from fastsim.hardware.catalogue import Gpu, Model, gpu, gpus, model, models

__all__ = ["Gpu", "Model", "engine_limits", "gpu", "gpus", "kv_capacity_tok", "model", "models"]
