"""Types of the options in Python, written by ``./dev generate`` from the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import Literal, TypedDict

from edl.core.options.value_types import StepRange, WindowLength, WorkerRange

PathOrUri = str | PurePath


class SharedOptions(TypedDict, total=False):
    """Options that all kinds of jobs have."""

    input_fn: str
    dataset_fn: str
    feature_columns: str
    data: PathOrUri | Sequence[PathOrUri]
    data_format: Literal["recordio", "tfrecord", "csv", "parquet"]
    data_cache: PathOrUri
    data_cache_size: int
    minibatch_size: int
    records_per_task: int
    name: str
    num_workers: int | str | WorkerRange
    gpus: Literal["each", "shared", "none"]
    task_attempts: int
    allow_dead_letters: bool
    stall_timeout: str | float
    snapshot_interval: str | float
    dashboard_port: int
    keep_page: str | float
    save_page: bool
    metrics_auth: Literal["token", "none"]
    platform: Literal["processes", "docker", "kubernetes"]
    image: str
    image_public_key: PathOrUri
    builder: str
    repository: str
    base_image: str
    builder_ca: PathOrUri
    builder_identity: PathOrUri
    builder_config: PathOrUri
    build_network: str
    engine: str
    context: str
    namespace: str
    state_volume: str
    service_account: str
    worker_service_account: str
    priority_class: str
    worker_priority_class: str
    ingress: str
    ingress_class: str
    suspend: bool
    start_timeout: str | float
    delete_after: str | float
    master_resources: str | dict[str, str]
    worker_resources: str | dict[str, str]
    node_selector: str | dict[str, str]
    tolerations: str | Sequence[str]
    volumes: str | Sequence[str]
    env: str | Sequence[str]
    env_from: str | Sequence[str]
    image_pull_secrets: str | Sequence[str]
    labels: str | dict[str, str]
    annotations: str | dict[str, str]
    pod_template: PathOrUri
    worker_pod_template: PathOrUri
    build_log: bool
    detach: bool
    dry_run: bool
    timeout: str | float


class TrainOptions(SharedOptions, total=False):
    """Options of ``elasticdl.train``."""

    model_zoo: PathOrUri
    model_def: str
    params: str | dict[str, object]
    set: str | Mapping[str, float]
    loss: str
    optimizer: str
    eval_metrics_fn: str
    label_columns: str
    validation_data: PathOrUri | Sequence[PathOrUri]
    output: PathOrUri
    export: str | Sequence[str]
    num_epochs: int
    window: int | str | WindowLength
    strategy: Literal["auto", "allreduce", "parameter-server"]
    update: Literal["sync", "async", "bounded"]
    grads_to_wait: int
    max_staleness: int
    overlap: bool
    local_steps: int
    wire_precision: Literal["float32", "float16", "bfloat16"]
    gradient_reduction: Literal["mean", "sum"]
    evaluation_steps: int
    embedding_threshold: int
    parameter_servers: int
    seed: int
    shuffle: bool
    init_from: PathOrUri
    checkpoint_dir: PathOrUri
    checkpoint_steps: int
    keep_checkpoints: int
    tensorboard_dir: PathOrUri
    profile: int | str | StepRange
    allow_gaps: bool
    git_credential: str
    server_resources: str | dict[str, str]
    yes: bool
    tracker: Literal["none", "mlflow"]


class EvaluateOptions(SharedOptions, total=False):
    """Options of ``elasticdl.evaluate``."""

    loss: str
    eval_metrics_fn: str
    label_columns: str
    trained_model: PathOrUri
    trusted_images: str | Sequence[str]
    trust_model: bool


class PredictOptions(SharedOptions, total=False):
    """Options of ``elasticdl.predict``."""

    trained_model: PathOrUri
    output: PathOrUri
    format: Literal["recordio", "csv", "parquet", "jsonl"]
    keep: str | Sequence[str]
    postprocess: Literal["argmax", "sigmoid", "softmax"]
    trusted_images: str | Sequence[str]
    trust_model: bool
