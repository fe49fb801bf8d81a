"""Mistakes in model files: the part that has it, its source, and what the remedy says."""

from __future__ import annotations

PARSE = """
def dataset_fn(dataset, mode):
    def parse(record):
        r = tf.io.parse_single_example(record, {"x": tf.io.FixedLenFeature([2], tf.float32)})
        return r["x"], tf.cast(r["x"][0] * 3, tf.int64)
    return dataset.map(parse)
"""
MODEL = "model = keras.Sequential([keras.Input((2,)), layers.Dense(8), layers.Dense(3)])\n"
LOSS = "loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)\n"
OPTIMIZER = "optimizer = keras.optimizers.Adam(0.01)\n"
NET = """
class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(3)
    def call(self, x):
        return self.dense(x)
"""
BASE = {"parse": PARSE, "model": MODEL, "loss": LOSS, "optimizer": OPTIMIZER, "more": ""}

CASES = [
    # the model
    ("model", "model = keras.Sequential([keras.Input((2,)), layers.Conv2D(8, 3)])", "keras.Input"),
    ("model", "model = keras.Sequential([keras.Input((2,)), [layers.Dense(3)]])", "one list"),
    ("model", MODEL.replace("Dense(8)", "Dense(8, activation='rellu')"), "relu"),
    ("model", MODEL.replace("Dense(8)", "Dense(8, activaton='relu')"), "activation?"),
    ("model", MODEL.replace("Dense(8)", "Dense(activation='relu')"), "'units'"),
    ("model", MODEL.replace("Dense(8)", "Dens(8)"), "Dense?"),
    ("model", "x = keras.Input((2,))\nmodel = keras.Model(layers.Dense(3)(x), x)", "inputs first"),
    ("model", "x = keras.Input((2,))\nmodel = keras.Model(x, layers.Dense(3))", "Dense(3)(x)"),
    ("model", NET.replace("        super().__init__()\n", ""), "super().__init__()"),
    ("model", NET.replace("return self.dense(x)", "self.dense(x)"), "End it with return"),
    ("model", NET.replace("dense(x)", "dense(np.log(x))"), "operations of TensorFlow"),
    ("model", MODEL.replace("Dense(8)", "Reshape((2, 1))"), "Flatten()"),
    ("model", MODEL.replace("Dense(8)", "Normalization()"), "Call its adapt(...)"),
    ("model", MODEL.replace("Dense(8)", "Discretization(num_bins=3)"), "bin_boundaries=[...]"),
    (
        "model",
        "x = keras.Input((2,), dtype='string')\n"
        "model = keras.Model(x, layers.Dense(3)(layers.StringLookup(output_mode='one_hot')(x)))",
        "string_lookup has no vocabulary yet",
    ),
    (
        "model",
        PARSE.replace('r["x"],', 'tf.as_string(r["x"]),')
        + "encode = layers.TextVectorization(vocabulary=['a'], output_sequence_length=2)\n"
        "x = keras.Input((2,))\nmodel = keras.Model(x, layers.Dense(3)(layers.Embedding(3, 4)("
        "encode(x))))",
        "text_vectorization takes texts",
    ),
    ("model", "open('words.txt')\n" + MODEL, "pathlib.Path(__file__)"),
    # optimizer, loss, metrics and callbacks
    ("optimizer", "optimizer = keras.optimizers.Adam(learning_rate='0.01')", "a number"),
    ("optimizer", "optimizer = keras.optimizers.Adam(-0.01)", "a positive number"),
    (
        "loss",
        "def loss(y_true, y_pred):\n    return float(y_pred[0, 0])",
        "operations of TensorFlow",
    ),
    (
        "loss",
        "def loss(y_true, y_pred):\n    return y_pred[:, 0] - tf.cast(y_true, tf.float64)",
        "tf.cast",
    ),
    ("loss", "loss = keras.metrics.SparseCategoricalAccuracy()", "keras.losses"),
    ("more", "metrics = [keras.metrics.AUC()]", "one output per label"),
    ("more", "metrics = {'a': keras.metrics.Recall()}", "one output per label"),
    ("more", "metrics = [keras.metrics.CategoricalAccuracy()]", "SparseCategoricalAccuracy"),
    ("more", "callbacks = [keras.callbacks.EarlyStopping]", "Write EarlyStopping(...)"),
    (
        "more",
        "callbacks = [keras.callbacks.ReduceLROnPlateau('loss', patience='3')]",
        "without quotes: patience=3",
    ),
    ("more", "callbacks = [keras.callbacks.LearningRateScheduler(0.001)]", "lambda epoch, rate"),
    (
        *(
            "more",
            "metrics = ['accuracy']\ncallbacks = keras.callbacks.EarlyStopping('val_acuracy')",
        ),
        "Did you mean val_accuracy?",
    ),
    (
        "loss",
        "def loss(labels, outputs):\n    return keras.losses.Hinge(labels, outputs)",
        "Hinge()(",
    ),
    ("more", "metrics = [keras.metrics.Accuracy()]", 'use "accuracy"'),
    (
        *(
            "loss",
            'from keras import backend as K\ndef loss(labels, outputs):\n    return K.cast("")',
        ),
        "keras.ops.cast",
    ),
    (
        "model",
        NET + "    def train_step(self, data):\n        return super().train_step(data)['loss']\n"
        "model = Net()",
        "Return a dictionary",
    ),
    (
        "model",
        "a, b = keras.Input((1,)), keras.Input((1,))\n"
        "model = keras.Model([a, b], layers.Dense(3)(layers.Concatenate()([a, b])))",
        "one tensor of a list",
    ),
    (
        "model",
        "x = keras.Input((2,))\nmodel = keras.Model(x, [layers.Dense(3)(x), layers.Dense(3)(x)])",
        "one label for each output",
    ),
    (
        "model",
        "x = keras.Input((2,))\nmodel = keras.Model(x, [layers.Dense(3, name='a')(x), "
        "layers.Dense(3, name='b')(x)])\n"
        + PARSE.replace(", tf.cast(", ", {'a': 0, 'c': tf.cast(").replace(
            "tf.int64)\n", "tf.int64)}\n"
        ),
        "the names of the outputs as the keys of the labels",
    ),
    (
        "loss",
        "def weighted(weight):\n    def f(y_true, y_pred):\n        return weight * y_pred\n"
        "    return f\nloss = weighted",
        "loss = weighted(weight=...)",
    ),
    ("more", "class_weight = {'no': 1.0, 'yes': 2.0}", "{0: 1.0, 1: 5.0}"),
    (
        "optimizer",
        "optimizer = keras.optimizers.SGD("
        "keras.optimizers.schedules.ExponentialDecay(0.1, 0.96, 1000))",
        "decay_steps=0.96, decay_rate=1000",
    ),
    (
        "more",
        "callbacks = [keras.callbacks.LearningRateScheduler("
        "keras.optimizers.schedules.CosineDecay(0.1, 100))]",
        "Adam(CosineDecay(...))",
    ),
    (
        "model",
        "x = keras.Input((2,))\n"
        "model = keras.Model(x, layers.Dense(3)(layers.Add()([x, layers.Dense(4)(x)])))",
        "Give all of them one shape",
    ),
    (
        "model",
        "x = keras.Input((2,))\ny = layers.LSTM(4, return_state=True)(layers.Reshape((2, 1))(x))\n"
        "model = keras.Model(x, layers.Dense(3)(y))",
        "lstm returns 3 tensors",
    ),
    ("model", NET.replace("dense(x)", "dense(tf.matmul(x, tf.ones((3, 3))))"), "MatMul gets [8,2]"),
    (
        "model",
        "class Own(layers.Layer):\n    def call(self, x):\n        return tf.matmul(x, self.w)\n"
        "model = keras.Sequential([keras.Input((2,)), Own(), layers.Dense(3)])",
        "self.w = self.add_weight(",
    ),
    (
        "model",
        NET + "    def train_step(self, data):\n        x, y, weights = data\nmodel = Net()",
        "x, y = data",
    ),
    (
        "optimizer",
        "optimizer = keras.optimizers.Adam(0.01, momentum=0.9)",
        "It takes learning_rate",
    ),
    ("loss", LOSS.replace("from_logits", "from_logit"), "Did you mean from_logits?"),
    (
        "loss",
        "import math\ndef loss(y_true, y_pred):\n    return math.log(y_pred[0, 0])",
        "operations of TensorFlow",
    ),
    ("more", "metrics = [lambda labels: 1.0]", "(labels, predictions)"),
    (
        "more",
        "class Own(keras.metrics.Metric):\n"
        "    def update_state(self, labels, outputs, sample_weight=None):\n        pass\n"
        "metrics = [Own()]",
        "Define result(...) in the class Own",
    ),
    (
        "more",
        "class Own(keras.metrics.Metric):\n    def __init__(self):\n        super().__init__()\n"
        "        self.total = self.add_weight(name='total', initializer='zeros')\n"
        "    def update_state(self, labels, outputs, sample_weight=None):\n"
        "        self.total += tf.reduce_sum(outputs)\n"
        "    def result(self):\n        return self.total\nmetrics = [Own()]",
        "self.total.assign_add(x)",
    ),
    (
        "more",
        "class Own(keras.metrics.Metric):\n    def __init__(self):\n        super().__init__()\n"
        "        self.total = 0.0\n"
        "    def update_state(self, labels, outputs, sample_weight=None):\n"
        "        self.total += tf.reduce_sum(outputs)\n"
        "    def result(self):\n        return self.total if self.total > 0 else 0.0\n"
        "metrics = [Own()]",
        "self.total = self.add_variable(shape=()",
    ),
    ("more", "callbacks = [keras.callbacks.EarlyStopping(patients=3)]", "Did you mean patience?"),
    ("more", "callbacks = [keras.callbacks.LambdaCallback(on_epoch_finish=print)]", "on_epoch_end"),
    (
        "more",
        "class Own(keras.callbacks.Callback):\n    def on_epoch_end(self, epoch):\n        pass\n"
        "callbacks = [Own()]",
        "def on_epoch_end(self, epoch, logs=None)",
    ),
    (
        "model",
        NET + "    def compute_loss(self, y, y_pred):\n        return y_pred\nmodel = Net()",
        "def compute_loss(self, x=None, y=None",
    ),
    ("model", NET.replace("(self, x)", "(self, x, z)"), "a dictionary with z"),
    ("model", NET.replace("dense(x)", "dense(x['a'])"), "by their names"),
    (
        "model",
        NET + "    def train_step(self, data):\n        x, y = data\n        y_pred = self(x)\n"
        "        with tf.GradientTape() as tape:\n"
        "            loss = self.compute_loss(y=y, y_pred=y_pred)\n"
        "        found = tape.gradient(loss, self.trainable_variables)\n"
        "        self.optimizer.apply(found, self.trainable_variables)\n"
        "        return {'loss': loss}\nmodel = Net()",
        "within `with tf.GradientTape()",
    ),
    (
        "model",
        "model = keras.Sequential([keras.Input((2, 1)), layers.GRU(4), "
        "layers.TimeDistributed(layers.Dense(3))])",
        "return_sequences=True",
    ),
    ("model", MODEL.replace("Dense(8)", "Discretization(3)"), "(bin_boundaries=3)"),
    ("model", MODEL.replace("Dense(8)", "Embedding(9, 4), layers.Flatten()"), "Give it ids"),
    (
        "model",
        MODEL.replace("Dense(8)", "Dense(8, kernel_initializer='glorot')"),
        "Did you mean GlorotNormal or GlorotUniform?",
    ),
    (
        "model",
        "x = keras.Input((2,))\n"
        "model = keras.Model(x, layers.Dense(3)(layers.MultiHeadAttention(2, 4)(x, x)))",
        "takes series, (steps, features)",
    ),
    (
        "model",
        "class Own(layers.Layer):\n    def build(self, input_shape):\n"
        "        self.w = self.add_weight(shape=(input_shape, 3))\n"
        "    def call(self, x):\n        return x @ self.w\n"
        "model = keras.Sequential([keras.Input((2,)), Own()])",
        "shape=(input_shape[-1], units)",
    ),
    ("more", "metrics = [keras.metrics.Mean()]", "MeanAbsoluteError"),
    # the data
    (
        "parse",
        PARSE.replace("tf.io.parse_single_example(record,", "record['x'] or ("),
        "decode_csv",
    ),
    (
        "parse",
        PARSE.replace('return r["x"], ', 'return {"x": r["x"], "y": ').replace("int64)", "int64)}"),
        "x, y: take the label out of it",
    ),
    (
        "parse",
        PARSE.replace(
            "return r[", "tf.io.decode_csv('1,2', [[0.0]] * 2, select_cols=[0])\n        return r["
        ),
        "Correct `tf.io.decode_csv(",
    ),
    ("parse", PARSE.replace("map(parse)", "map(parse).flat_map(lambda x, y: x)"), "Use .map"),
    ("parse", PARSE.replace("return r[", "tf.one_hot('a', 3)\n        return r["), "to_number(x)"),
    ("parse", PARSE.replace('return r["x"]', "return tf.strings.to_number('a')"), "StringLookup"),
    ("parse", PARSE.replace("return r[", "r["), "End this function with return"),
    ("parse", PARSE.replace("map(parse)", "batch(4).map(parse)"), "tf.io.parse_example"),
    ("parse", PARSE.replace("map(parse)", "map(parse())"), ".map(parse)"),
    ("parse", PARSE.replace("parse(record)", "parse(record, y)"), "a record is one"),
    ("parse", PARSE.replace("([2], tf.float32)", "([2], tf.int32)"), "tf.int64, tf.float32"),
    ("parse", PARSE.replace("([2], tf.float32)", "([], tf.float32)"), "is one value"),
    ("parse", PARSE.replace('["x"][0]', '["x"][5]'), "Indexes begin with 0"),
    ("more", 'metrics = "accuracy, mae"', "Write a list: ['accuracy', 'mae']."),
    ("more", 'metrics = ["presicion"]', "Did you mean precision?"),
    (
        "parse",
        PARSE.replace("return dataset.", "return tf.data.TFRecordDataset(dataset)."),
        "leave TextLineDataset and TFRecordDataset out",
    ),
    ("parse", PARSE.replace('["x"][0]', '["X"][0]'), "Did you mean x? r has x."),
    (
        "parse",
        PARSE.replace("return r[", "tf.reshape(r['x'], [3])\n        return r["),
        "Reshape gets [2]",
    ),
    (
        "parse",
        PARSE.replace("(dataset, mode)", "(dataset, batch_size, mode)"),
        "a value in --params",
    ),
    ("parse", PARSE.replace("map(parse)", "map(parse).window(4)"), ".flat_map("),
    (
        "parse",
        PARSE.replace(
            "return r[", "tf.image.resize(tf.io.decode_image(b''), [2, 2])\n        return r["
        ),
        "expand_animations=False",
    ),
    (
        "parse",
        PARSE.replace("return r[", "tf.stack([1, 2.0, tf.constant(1)])\n        return r["),
        "tf.cast(x, tf.float32)",
    ),
    (
        "parse",
        PARSE.replace('return r["x"], ', "return ").replace("tf.int64)", 'tf.int64), r["x"]'),
        "features first",
    ),
    (
        "parse",
        PARSE.replace('return r["x"], ', 'return layers.RandomFlip()(r["x"][:, None, None]), '),
        "top of the file",
    ),
    (
        "parse",
        PARSE.replace("return r[", "print(r['x'].numpy())\n        return r["),
        "py_function",
    ),
    ("parse", PARSE.replace('"x": tf', '"z": tf').replace('r["x"]', 'r["z"]'), "no feature z"),
    (
        "parse",
        PARSE.replace("return r[", "return tf.io.decode_csv('1,2,3', [0.0, 0.0])[0] + r["),
        "record_defaults",
    ),
]
