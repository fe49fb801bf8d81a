"""Trees as a layer: they predict and explain by TensorFlow alone.

All trees have the shape of a full binary tree, whose paths are known before there
is any tree. A branch that ends earlier goes on to the left, where its leaf is.
"""

import numpy as np
import tensorflow as tf

NO_SPLIT = -1
_ROWS_AT_ONCE = 4096


class TreeEnsemble(tf.keras.layers.Layer):
    """Adds up the leaves that a row reaches: (n, inputs) to (n, outputs).

    A row goes to the right if its number is not below the threshold, or if its category is the one of
    the split, or if it is missing and the split says so.

    Args:
        rounds: how many rounds of trees there can be.
        outputs: numbers for each row.
        parallel: trees of each output in a round.
        levels: of splits.
        is_category: which inputs are categories.

    Attributes:
        splits: input, threshold or category, and whether missing values go to the right:
            (trees, 2 ** levels - 1, 3). The root comes first, and the children of i are 2 i + 1, 2 i + 2.
        leaves: what each leaf adds: (trees, 2 ** levels).
        covers: how much of the training data each leaf has: (trees, 2 ** levels).
        intercept: what every row begins with: (outputs,).
        grown: how many rounds there are: (1,).
    """

    def __init__(self, rounds, outputs, parallel, levels, is_category, **kwargs):
        super().__init__(**kwargs)
        self.rounds, self.outputs, self.parallel, self.levels = rounds, outputs, parallel, levels
        self._is_category = is_category
        trees, nodes = rounds * outputs * parallel, 2**levels - 1

        def make(name, shape, trainable=False):
            return self.add_weight(
                name=name, shape=shape, initializer="zeros", trainable=trainable, dtype="float32"
            )

        self.splits = make("splits", (trees, nodes, 3))
        self.leaves = make("leaves", (trees, nodes + 1))
        self.covers = make("covers", (trees, nodes + 1))
        self.grown = make("grown", (1,))
        self.intercept = make("intercept", (outputs,), trainable=True)
        leaf, level = np.arange(nodes + 1)[:, np.newaxis], np.arange(levels)
        self._on_path = (leaf >> (levels - level)) + 2**level - 1
        self._turns_right = (leaf >> (levels - 1 - level)) & 1

    def call(self, inputs):
        rows = tf.shape(inputs)[0]
        parts = -(-rows // _ROWS_AT_ONCE)
        found = tf.TensorArray(tf.float32, parts, element_shape=(None, self.outputs))

        def add(part, found):
            begin = part * _ROWS_AT_ONCE
            return part + 1, found.write(part, self._sum(inputs[begin : begin + _ROWS_AT_ONCE]))

        _, found = tf.while_loop(lambda part, _: part < parts, add, (0, found))
        return tf.reshape(found.concat(), (rows, self.outputs))

    def _sum(self, inputs):
        nodes, rows = 2**self.levels - 1, tf.shape(inputs)[0]
        rounds = tf.cast(self.grown[0], tf.int32)
        number = rounds * self.outputs * self.parallel
        trees = tf.range(number)[tf.newaxis]
        splits = tf.reshape(self.splits[:number], (-1, 3))
        leaves = tf.reshape(self.leaves[:number], (-1,))
        at = tf.zeros((rows, number), tf.int32)
        for _ in range(self.levels):
            at = 2 * at + 1 + self._turns(inputs, tf.gather(splits, at + trees * nodes))
        reached = tf.gather(leaves, at - nodes + trees * (nodes + 1))
        by_output = tf.reshape(reached, (rows, rounds, self.outputs, self.parallel))
        return self.intercept + tf.reduce_sum(by_output, axis=(1, 3))

    def _turns(self, inputs, splits):
        """Return 1 where a row goes to the right: (n, splits), of splits (n, splits, 3)."""
        names, thresholds, missing = tf.unstack(splits, axis=-1)
        names = tf.cast(names, tf.int32)
        numbers = tf.gather(inputs, tf.maximum(names, 0), axis=1, batch_dims=1)
        is_category = tf.gather(tf.constant(self._is_category), tf.maximum(names, 0))
        right = tf.where(is_category, numbers == thresholds, numbers >= thresholds)
        right = tf.where(tf.math.is_nan(numbers), missing > 0, right)
        return tf.cast(right & (names != NO_SPLIT), tf.int32)

    def explain(self, inputs, outputs):
        """Return the Shapley values of the inputs for the sum of some outputs: (n, inputs).

        They are those of Lundberg et al. (2020), in comparison with all rows of the training. Of each
        leaf, whose value is a product over the inputs on its path, they are an integral of a polynomial
        (Owen, 1972), for which some points of Gauss and Legendre give the exact result.

        Args:
            outputs: how much each output counts: (n, outputs).
        """
        points, weights = np.polynomial.legendre.leggauss(-(-self.levels // 2))
        points, weights = (points + 1) / 2, weights / 2
        of_leaf = tf.constant(self._turns_right, tf.float32)

        def add(tree, total):
            splits = tf.repeat(self.splits[tree][tf.newaxis], tf.shape(inputs)[0], axis=0)
            turns = tf.cast(self._turns(inputs, splits), tf.float32)
            leaves_path = tf.abs(tf.gather(turns, self._on_path, axis=1) - of_leaf)
            names = tf.cast(tf.gather(self.splits[tree][:, 0], self._on_path), tf.int32)
            same = names[:, :, tf.newaxis] == names[:, tf.newaxis]
            first = tf.argmax(tf.cast(same, tf.int32), axis=2)
            merged = tf.one_hot(first, self.levels)  # (leaves, level, first level of its input)
            kept = self._shares(tree)
            kept = tf.reduce_prod(tf.where(merged > 0, kept[..., tf.newaxis], 1.0), axis=1)
            follows = tf.cast(tf.einsum("nlk,lke->nle", leaves_path, merged) == 0, tf.float32)
            effect = tf.zeros_like(follows)
            for point, weight in zip(points, weights, strict=True):
                factors = float(point) * follows + float(1 - point) * kept
                product = tf.reduce_prod(factors, axis=2, keepdims=True)
                effect += float(weight) * tf.math.divide_no_nan(product, factors)
            effect *= (follows - kept) * self.leaves[tree][:, tf.newaxis]
            output = tree // self.parallel % self.outputs
            effect *= tf.gather(outputs, output, axis=1)[:, tf.newaxis, tf.newaxis]
            flat = tf.transpose(tf.reshape(effect, (tf.shape(inputs)[0], -1)))
            sums = tf.math.unsorted_segment_sum(flat, tf.reshape(names, (-1,)), inputs.shape[1])
            return tree + 1, total + tf.transpose(sums)

        trees = tf.cast(self.grown[0], tf.int32) * self.outputs * self.parallel
        return tf.while_loop(
            lambda tree, _: tree < trees, add, (tf.constant(0), tf.zeros_like(inputs))
        )[1]

    def _shares(self, tree):
        """Return which share of a node's data goes on along each path: (leaves, levels)."""
        covers = self.covers[tree]
        sums = [
            tf.repeat(
                tf.reduce_sum(tf.reshape(covers, (2**level, -1)), axis=1),
                2 ** (self.levels - level),
            )
            for level in range(self.levels + 1)
        ]
        pairs = zip(sums[1:], sums[:-1], strict=True)
        return tf.stack([tf.math.divide_no_nan(below, above) for below, above in pairs], axis=1)
