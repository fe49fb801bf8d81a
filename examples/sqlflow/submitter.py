"""A submitter: the program that SQLFlow would generate from these two statements.

    SELECT name, role, salary FROM employee
    TRAIN regressor.DNN
    WITH hidden_units=[10, 100, 20, 5], learning_rate=0.01
    INTO my_trained_model;

    SELECT name, role FROM testdata
    PREDICT testdata.predicted_salary
    USING my_trained_model;

It knows the Python API of edl, and of the builder service the stubs; it needs no container engine.
Where jobs run, and other options of theirs, are variables: ``EDL_PLATFORM=kubernetes``.
"""

import io
import os
import tarfile
from collections.abc import Iterator

import grpc

import elasticdl
from edl_proto.v1 import builder_pb2, builder_pb2_grpc

DATABASE = os.environ["SQLFLOW_DATABASE"]  # its password is a variable that the driver reads
FOLDER = os.environ["SQLFLOW_FOLDER"]  # that the job's processes see, too; or gs://…
MODEL_ZOO = os.environ.get("SQLFLOW_MODEL_ZOO", "/model_zoo")
BUILDER = os.environ.get("SQLFLOW_BUILDER")  # HOST:PORT; without one, no image is built
BUILDER_CA = os.environ.get("SQLFLOW_BUILDER_CA")  # file that authenticates it; none: no TLS
BUILDER_TOKEN = os.environ.get("SQLFLOW_BUILDER_TOKEN")  # of the tenant; none: an open builder
REPOSITORY = os.environ.get("SQLFLOW_REPOSITORY", "")  # that the tenant may push to


def build_requests() -> Iterator[builder_pb2.BuildRequest]:
    """What is wanted, then the model zoo in pieces."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        tar.add(MODEL_ZOO, arcname=".")
    archive = buffer.getvalue()
    source = builder_pb2.ArchiveSource(nbytes=len(archive))
    spec = builder_pb2.BuildSpec(archive=source, repository=REPOSITORY)
    yield builder_pb2.BuildRequest(spec=spec)
    for start in range(0, len(archive), 1 << 16):
        yield builder_pb2.BuildRequest(chunk=archive[start : start + (1 << 16)])


def connect(builder: str) -> grpc.Channel:
    """A channel with TLS if the builder has it, as one for several tenants must."""
    if BUILDER_CA is None:
        return grpc.insecure_channel(builder)
    with open(BUILDER_CA, "rb") as file:
        return grpc.secure_channel(builder, grpc.ssl_channel_credentials(file.read()))


def build_image(builder: str) -> str:
    """The name of an image with the model zoo, and its digest."""
    with connect(builder) as channel:
        stub = builder_pb2_grpc.BuilderStub(channel)
        token = [("authorization", f"Bearer {BUILDER_TOKEN}")] if BUILDER_TOKEN else None
        news = stub.Build(build_requests(), timeout=600, metadata=token)
        return [each.status for each in news if each.HasField("status")][-1].result.image


def train() -> None:
    elasticdl.convert_data(
        DATABASE,
        query="SELECT name, role, salary FROM employee",
        label="salary",
        output=f"{FOLDER}/rows",
    )
    elasticdl.train(
        model_zoo=MODEL_ZOO,
        model_def="regressor.DNN",
        input_fn="sqlflow.elasticdl_input_function",
        params="hidden_units=[10, 100, 20, 5], learning_rate=0.01",
        data=f"{FOLDER}/rows",
        num_epochs=100,
        output=f"{FOLDER}/my_trained_model",
        **({"image": build_image(BUILDER)} if BUILDER else {}),
    )


def predict() -> None:
    elasticdl.convert_data(
        DATABASE, query="SELECT name, role FROM testdata", output=f"{FOLDER}/new_rows"
    )
    elasticdl.predict(
        trained_model=f"{FOLDER}/my_trained_model",
        data=f"{FOLDER}/new_rows",
        keep="name",
        output=f"{FOLDER}/predictions.recordio",
    )
    done = elasticdl.load_data(
        f"{FOLDER}/predictions.recordio",
        to=DATABASE,
        table="testdata",
        column="predicted_salary",
        key="name",
    )
    print(f"{done.rows} predictions in testdata.predicted_salary")


if __name__ == "__main__":
    train()
    predict()
