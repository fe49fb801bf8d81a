"""A model file that trains, evaluates or predicts while it is loaded is refused with its line."""

from __future__ import annotations

import keras
import pytest
from contract_cases import GOOD, errors, write
from zoo_folder import ZooFolder

from edl_proto.errors import ErrorCode

CALLS = {
    "fit": "model.fit(np.zeros((8, 28, 28)), np.zeros(8), epochs=1)",
    "evaluate": "model.evaluate(np.zeros((8, 28, 28)), np.zeros(8))",
    "predict": "model.predict(np.zeros((8, 28, 28)))",
    "train_on_batch": "model.train_on_batch(np.zeros((8, 28, 28)), np.zeros(8))",
    "test_on_batch": "model.test_on_batch(np.zeros((8, 28, 28)), np.zeros(8))",
    "predict_on_batch": "model.predict_on_batch(np.zeros((8, 28, 28)))",
}
COMPILED = 'model.compile(loss="sparse_categorical_crossentropy")\n'


@pytest.mark.parametrize("name", CALLS)
def test_a_call_at_module_level_is_refused_with_its_line(zoo: ZooFolder, name: str) -> None:
    write(zoo, model=GOOD["model"] + COMPILED + CALLS[name])
    (error,) = errors(zoo)
    line = zoo.line("mine.py", CALLS[name])
    assert error.code == ErrorCode.MODEL_CONTRACT
    assert f"calls {name}()" in error.what
    assert error.where == f"{zoo.root / 'mine.py'}:{line}"
    assert 'if __name__ == "__main__":' in error.remedy


def test_a_call_in_the_function_that_builds_the_model_is_refused(zoo: ZooFolder) -> None:
    body = "\n    ".join((GOOD["model"] + COMPILED + CALLS["fit"]).strip().splitlines())
    write(zoo, model=f"def build_model():\n    {body}\n    return model\n")
    (error,) = [e for e in errors(zoo) if "calls fit()" in e.what]
    assert error.where == f"{zoo.root / 'mine.py'}:{zoo.line('mine.py', 'model.fit')}"


def test_a_call_in_another_module_of_the_zoo_is_refused_there(zoo: ZooFolder) -> None:
    zoo.write("trained.py", GOOD["model"] + COMPILED + CALLS["fit"])
    write(zoo, model="from trained import model")
    (error,) = errors(zoo)
    assert error.where == f"{zoo.root / 'trained.py'}:{zoo.line('trained.py', 'model.fit')}"


def test_a_call_under_main_is_no_error_and_keras_is_as_before(zoo: ZooFolder) -> None:
    before = keras.Model.fit
    write(zoo, model=f'{GOOD["model"]}\nif __name__ == "__main__":\n    {CALLS["fit"]}\n')
    zoo.load("mine")
    assert keras.Model.fit is before
    assert not any(name in vars(keras.Model) for name in CALLS if name != "fit")
