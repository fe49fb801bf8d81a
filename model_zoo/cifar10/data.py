"""Dataset function, loss, optimizer and metrics of both CIFAR-10 models.

Records: tf.Example with ``image`` (32×32×3 floats from 0 to 255) and ``label`` (int64).
"""

import tensorflow as tf

from elasticdl.python.common.constants import Mode


def dataset_fn(dataset, mode):
    description = {"image": tf.io.FixedLenFeature([32, 32, 3], tf.float32)}
    if mode != Mode.PREDICTION:
        description["label"] = tf.io.FixedLenFeature([1], tf.int64)

    def parse(record):
        example = tf.io.parse_single_example(record, description)
        image = example["image"] / 255.0
        if mode == Mode.PREDICTION:
            return {"image": image}
        if mode == Mode.TRAINING:
            image = tf.image.random_flip_left_right(image)
        return {"image": image}, tf.cast(example["label"], tf.int32)

    dataset = dataset.map(parse)
    return dataset.shuffle(buffer_size=1024) if mode == Mode.TRAINING else dataset


loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)


def optimizer(learning_rate=0.001):
    return tf.keras.optimizers.Adam(learning_rate)


def eval_metrics_fn():
    return {
        "accuracy": tf.keras.metrics.SparseCategoricalAccuracy(),
        "top_3": tf.keras.metrics.SparseTopKCategoricalAccuracy(k=3),
    }
