"""Runs the tasks of one job, whatever their type."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, cast

from edl_proto.errors import EdlError
from edl_worker.concurrency.shared_state import LeavingError, SharedState
from edl_worker.config import Settings
from edl_worker.core.batch import Batch
from edl_worker.core.model_description import ModelDescription
from edl_worker.core.registration import JobAdmission
from edl_worker.core.replica_engine import ReplicaEngine
from edl_worker.core.step_engine import OptimizerState, Profiler, StepEngine
from edl_worker.core.tasks import (
    Lease,
    MasterReplacedError,
    OutOfOrderError,
    TaskLostError,
    TaskResult,
    TaskType,
    WorkerPhase,
)
from edl_worker.metrics import WorkerMetrics
from edl_worker.tasks import evaluation, prediction, task_errors
from edl_worker.tasks.kept_features import read_kept_features
from edl_worker.tasks.lease_prefetcher import Assignment, LeasePrefetcher
from edl_worker.tasks.loaded_model import LoadedModel
from edl_worker.tasks.replicated_loop import ReplicatedLoop
from edl_worker.tasks.training_loop import TrainingLoop
from edl_worker.training.initial_values import send_initial_values
from edl_worker.training.replica import ParameterReplica, read_slots
from edl_worker.training.replica_member import ReplicaMember
from edl_worker.training.trainer import GradientTrainer, LocalTrainer
from edl_worker.transport.parameter_client import ParameterClient

log = logging.getLogger(__name__)

MakeMember = Callable[[ReplicaEngine, str], ReplicaMember]
"""Makes this worker a member of the replica group, with a model and how its loss reduces."""


class TaskRunner:
    """A loaded model that runs tasks for one master.

    Attributes:
        model: the model as it is described to the master.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        client: ParameterClient,
        make_member: MakeMember,
        state: SharedState,
        metrics: WorkerMetrics,
        settings: Settings,
        profiler: Profiler | None = None,
    ) -> None:
        self.model: ModelDescription = loaded.describe()
        self._loaded = loaded
        self._client = client
        self._state = state
        self._training: _Training | None = None
        if loaded.steps is not None:
            self._training = _Training(
                loaded, loaded.steps, client, make_member, state, metrics, settings
            )
            self._training.loop.profiler = profiler
        self._at: tuple[int, Batch] | None = None

    def minibatches(self, lease: Lease) -> Iterator[Batch] | None:
        """Return the minibatches of a task; None if it has no records."""
        return self._loaded.minibatches(lease)

    def join(self, admission: JobAdmission) -> None:
        """Use the parameters of the job that has admitted this model."""
        self._client.open(admission, self.model)
        if self._training is not None and self._training.member is not None:
            self._training.member.open(admission.layout_fingerprint)
        if not admission.send_initial_values:
            return
        assert self._training is not None, "only a training job has initial values"
        accepted = self._training.send_initial_values(self._client)
        log.info("the initial values are %s", "this worker's" if accepted else "another worker's")

    def forget_parameters(self) -> None:
        """Treat the parameters as no version of the present master."""
        if self._training is not None:
            self._training.values.forget()

    @property
    def take_part(self) -> Callable[[], None] | None:
        """Work that does not end while there is no task; each call waits a little."""
        if self._training is None or self._training.member is None:
            return None
        return self._training.member.take_part

    def leave(self, within_s: float) -> None:
        """Do what the worker's end requires beyond returning its leases.

        Raises: as ``TaskClient.return_leases``.
        """
        if self._training is not None and self._training.member is not None:
            self._training.member.leave(within_s)

    def run(self, assignment: Assignment, prefetcher: LeasePrefetcher) -> TaskResult:
        """Run one task.

        Raises:
            TaskLostError: another worker has it now.
            OutOfOrderError: it has to be handed back.
            EdlError: it failed.
            LeavingError: the worker has to leave; the lease stays held.
            MasterReplacedError: the results are for a former incarnation of the master.
        """
        lease = assignment.lease
        self._at = None
        with self._explain_errors(lease):
            if assignment.error is not None:
                raise assignment.error
            match lease.task.type:
                case TaskType.TRAINING:
                    assert self._training is not None, "training tasks come in training jobs"
                    return self._training.loop.run(assignment, prefetcher)
                case TaskType.EVALUATION:
                    return self._evaluate(assignment)
                case TaskType.EVALUATION_SUMMARY:
                    return evaluation.summarize(self._loaded.engine, lease.metric_states)
                case TaskType.PREDICTION:
                    return self._predict(assignment)
                case TaskType.EXPORT:
                    return self._export(lease)
                case TaskType.CALLBACKS:
                    return self._call_callbacks(lease)

    def is_permanent(self, error: EdlError) -> bool:
        """Whether another attempt at a task cannot help."""
        return task_errors.is_permanent(error)

    # --- types of tasks --------------------------------------------------------------------

    def _evaluate(self, assignment: Assignment) -> TaskResult:
        assert assignment.batches is not None, "an evaluation task has records"
        self._use_frozen(assignment.lease)
        result = evaluation.evaluate(
            self._loaded.engine,
            self._loaded.infer,
            assignment.batches,
            lambda index, batch: self._before_minibatch(assignment.lease, index, batch),
        )
        result.records = assignment.lease.record_count
        return result

    def _predict(self, assignment: Assignment) -> TaskResult:
        assert assignment.batches is not None, "a prediction task has records"
        lease, settings = assignment.lease, self._loaded.job.prediction
        return prediction.predict(
            self._loaded.predict,
            self._loaded.output_names,
            lease,
            assignment.batches,
            prediction.Postprocessing(
                read_kept_features(
                    lambda: self._loaded.read(lease.records), lease.columns, settings.keep
                ),
                settings.postprocess,
            ),
            lambda index, batch: self._before_minibatch(assignment.lease, index, batch),
        )

    def _export(self, lease: Lease) -> TaskResult:
        assert self._training is not None, "only a training job has something to export"
        self._use_frozen(lease)
        self._state.phase = WorkerPhase.COMPUTING
        return TaskResult(warnings=self._training.export(lease))

    def _call_callbacks(self, lease: Lease) -> TaskResult:
        assert self._training is not None, "callbacks are called in training jobs"
        self._training.loop.pull(lease)
        self._state.phase = WorkerPhase.COMPUTING
        reply = self._training.steps.call_callbacks(lease.task.round, lease.callbacks)
        return TaskResult(callbacks=reply, warnings=reply.warnings)

    def _use_frozen(self, lease: Lease) -> None:
        if lease.frozen and self._training is not None:
            self._state.phase = WorkerPhase.EXCHANGING
            self._training.values.use_frozen(lease.frozen)

    def _before_minibatch(self, lease: Lease, index: int, batch: Batch) -> None:
        """Prepare for the next minibatch of a task that reports only at its end."""
        self._at = index, batch
        self._state.phase = WorkerPhase.COMPUTING
        self._state.check_lease(lease.ref)

    @contextlib.contextmanager
    def _explain_errors(self, lease: Lease) -> Iterator[None]:
        """Turn an exception inside into an EdlError that names the place in the data."""
        try:
            yield
        except (LeavingError, MasterReplacedError, TaskLostError, OutOfOrderError):
            raise
        except task_errors.NotFiniteError as error:
            raise task_errors.name_value(error, partial(self._loaded.records, lease)) from error
        except EdlError as error:
            task_errors.add_place(error, task_errors.place(lease, (self._at or (None,))[0]))
            raise
        except Exception as error:
            index, batch = self._at or (None, None)
            task = lease.task.type.label.replace("_", " ")
            raise task_errors.explain(
                error,
                doing=f"the {task} task raised",
                where=task_errors.place(lease, index),
                zoo=self._loaded.zoo,
                inputs=self._loaded.engine.summarize().input_shapes,
                batch=batch,
            ) from error


class _Training:
    """The additional parts of a training job: parameters, and a model to export."""

    def __init__(
        self,
        loaded: LoadedModel,
        steps: StepEngine,
        client: ParameterClient,
        make_member: MakeMember,
        state: SharedState,
        metrics: WorkerMetrics,
        settings: Settings,
    ) -> None:
        job = loaded.job
        self._loaded = loaded
        self._client = client
        self.steps = steps
        self._initial = steps.pack()
        self.member: ReplicaMember | None = None
        self.values: ParameterReplica | ReplicaMember
        self.loop: TrainingLoop | ReplicatedLoop
        options: dict[str, Any] = {
            "state": state,
            "metrics": metrics,
            "zoo": loaded.zoo,
            "minibatch_size": job.minibatch_size,
            "prefetch_lead_s": settings.prefetch_lead_s,
            "model_inputs": loaded.engine.summarize().input_shapes,
        }
        if job.training.replicated:
            reduction = job.training.reduction or steps.describe().reduction
            replica_steps = cast(ReplicaEngine, steps)  # since the job is replicated
            self.member = make_member(replica_steps, reduction)
            self.values = self.member
            self.loop = ReplicatedLoop(member=self.member, **options)
        else:
            replica = ParameterReplica(steps, client)
            is_local = job.training.trains_locally
            self.values = replica
            self.loop = TrainingLoop(
                options=job.training,
                replica=replica,
                trainer=LocalTrainer(steps) if is_local else GradientTrainer(steps),
                tables=steps.tables,
                **options,
            )
            loaded.infer.rows = replica.frozen_rows
            self._scan = replica.scan

    def send_initial_values(self, client: ParameterClient) -> bool:
        return send_initial_values(client, self._initial, self.steps.tables)

    def export(self, lease: Lease) -> tuple[str, ...]:
        with contextlib.ExitStack() as stack:
            if self.steps.tables is not None:
                stack.enter_context(self.steps.tables.stored_rows(self._scan))
            if self.member is not None:
                cast(ReplicaEngine, self.steps).set_learning_rate(lease.learning_rate)
            exporter = replace(self._loaded.exporter, optimizer=self._optimizer_state(lease))
            return exporter.export(lease.export, lease.part_path)

    def _optimizer_state(self, lease: Lease) -> OptimizerState | None:
        """Return what the master's optimizer ended with; None: there is none that is of use."""
        names = self.steps.exported_slots
        training = self._loaded.job.training
        if names is None or training.trains_locally or training.replicated:
            return None
        updates, slots = read_slots(self._client, self.steps.layout.nbytes, names)
        return OptimizerState(updates, lease.learning_rate, slots)
