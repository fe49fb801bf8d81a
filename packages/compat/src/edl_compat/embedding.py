"""``Embedding`` with the arguments that ElasticDL's had."""

from __future__ import annotations

from typing import Any

import keras

from elasticdl import layers


@keras.saving.register_keras_serializable(package="elasticdl", name="OldEmbedding")
class OldEmbedding(layers.Embedding):
    """``elasticdl.layers.Embedding``; ``input_length`` is not needed and does nothing.

    Ids may be floating numbers, which an ``Input`` without a dtype makes of them.
    """

    def __init__(
        self,
        output_dim: int,
        input_dim: int | None = None,
        embeddings_initializer: Any = "uniform",
        mask_zero: bool = False,
        input_length: Any = None,
        combiner: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            output_dim, embeddings_initializer, mask_zero, combiner, input_dim=input_dim, **kwargs
        )
        self.input_length = input_length


Embedding = OldEmbedding
