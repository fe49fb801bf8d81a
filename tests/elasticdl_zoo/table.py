"""Rows of a table: columns of features and of ElasticDL, two outputs, their metrics, a schedule."""

import tensorflow as tf

from elasticdl.python.common.constants import MaxComputeConfig, Mode, ODPSConfig
from elasticdl.python.common.log_utils import default_logger as logger
from elasticdl.python.data.odps_io import is_odps_configured
from elasticdl.python.elasticdl.callbacks import LearningRateScheduler
from elasticdl.python.elasticdl.feature_column import feature_column as elasticdl_column

AGE = tf.feature_column.numeric_column("age", shape=(1,), dtype=tf.float32)
AGE_GROUPS = tf.feature_column.bucketized_column(AGE, boundaries=[20, 40, 60])
CITY = tf.feature_column.categorical_column_with_hash_bucket("city", hash_bucket_size=16)
BOTH = tf.feature_column.crossed_column([AGE_GROUPS, "city"], hash_bucket_size=64)
COLUMNS = [
    AGE_GROUPS,
    tf.feature_column.indicator_column(BOTH),
    tf.feature_column.indicator_column(CITY),
    elasticdl_column.embedding_column(CITY, dimension=4),
]


def custom_model():
    logger.info("MaxCompute project %s", MaxComputeConfig.PROJECT_NAME)
    inputs = {
        "age": tf.keras.layers.Input(name="age", shape=(1,), dtype=tf.float32),
        "city": tf.keras.layers.Input(name="city", shape=(1,), dtype=tf.string),
    }
    x = tf.keras.layers.DenseFeatures(COLUMNS)(inputs)
    logits = tf.keras.layers.Dense(1, name="dense")(x)
    logits = tf.reshape(logits, shape=(-1,))
    probs = tf.reshape(tf.sigmoid(logits), shape=(-1, 1))
    return tf.keras.Model(inputs=inputs, outputs={"logits": logits, "probs": probs}, name="table")


def loss(labels, predictions):
    logits = predictions["logits"]
    labels = tf.cast(tf.reshape(labels, [-1]), tf.float32)
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def optimizer(lr=0.1):
    return tf.keras.optimizers.Adam(learning_rate=lr)


def feed(dataset, mode, metadata):
    if is_odps_configured():
        logger.info("a table of %s", ODPSConfig.PROJECT_NAME)
    columns = list(metadata.column_names)
    age, city, label = (columns.index(name) for name in ("age", "city", "label"))

    def parse(record):
        features = {
            "age": tf.strings.to_number(record[age : age + 1], tf.float32),
            "city": record[city : city + 1],
        }
        if mode == Mode.PREDICTION:
            return features
        return features, tf.strings.to_number(record[label], tf.int32)

    dataset = dataset.map(parse)
    return dataset.shuffle(buffer_size=64) if mode == Mode.TRAINING else dataset


def eval_metrics_fn():
    return {
        "logits": {
            "accuracy": lambda labels, predictions: tf.equal(
                tf.cast(tf.reshape(predictions, [-1]) > 0.0, tf.int32),
                tf.cast(tf.reshape(labels, [-1]), tf.int32),
            )
        },
        "probs": {"auc": tf.keras.metrics.AUC()},
    }


def callbacks():
    def _schedule(model_version):
        if model_version < 5000:
            return 0.1
        return 0.01

    return [LearningRateScheduler(_schedule)]
