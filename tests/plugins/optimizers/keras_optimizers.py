"""The Keras classes of the example's optimizers, for model files."""

import keras
from keras import ops


class SignMomentum(keras.optimizers.Optimizer):
    def __init__(self, learning_rate=0.01, momentum=0.9, **options):
        super().__init__(learning_rate, **options)
        self.momentum = momentum

    def build(self, variables):
        if not self.built:
            super().build(variables)
            self._momentums = self.add_optimizer_variables(variables, "momentum")

    def update_step(self, gradient, variable, learning_rate):
        momentum = self._momentums[self._get_variable_index(variable)]
        self.assign_add(momentum, (gradient - momentum) * (1 - self.momentum))
        lr = ops.cast(learning_rate, variable.dtype)
        self.assign_sub(variable, lr * ops.sign(momentum))

    def get_config(self):
        return {**super().get_config(), "momentum": self.momentum}


class RowScaled(keras.optimizers.Optimizer):
    def __init__(self, learning_rate=0.01, rho=0.9, epsilon=1e-6, **options):
        super().__init__(learning_rate, **options)
        self.rho = rho
        self.epsilon = epsilon

    def build(self, variables):
        if not self.built:
            super().build(variables)
            self._rows = [
                self.add_variable(
                    v.shape[:-1], keras.initializers.Constant(0.5), v.dtype, name=f"row_{number}"
                )
                for number, v in enumerate(variables)
            ]

    def update_step(self, gradient, variable, learning_rate):
        row = self._rows[self._get_variable_index(variable)]
        squares = ops.mean(ops.square(gradient), axis=-1)
        self.assign_add(row, (squares - row) * (1 - self.rho))
        scaled = gradient / ops.expand_dims(ops.sqrt(row) + self.epsilon, -1)
        norm = ops.sqrt(ops.sum(ops.square(variable)))
        lr = ops.cast(learning_rate, variable.dtype)
        self.assign_sub(variable, lr * norm * scaled)

    def get_config(self):
        return {**super().get_config(), "rho": self.rho, "epsilon": self.epsilon}
