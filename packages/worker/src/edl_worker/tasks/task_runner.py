"""Where a worker does its tasks, whatever their type. Importing this imports TensorFlow."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

from edl_proto.errors import EdlError
from edl_proto.v1 import error_pb2, job_pb2, task_pb2
from edl_worker.concurrency.shared_state import LeavingError, SharedState
from edl_worker.config import Settings
from edl_worker.metrics import WorkerMetrics
from edl_worker.model_file import Batch
from edl_worker.tasks import evaluation, prediction, task_errors
from edl_worker.tasks.lease_prefetcher import Assignment, LeasePrefetcher
from edl_worker.tasks.loaded_model import LoadedModel
from edl_worker.tasks.training_loop import OutOfOrderError, TaskLostError, TrainingLoop
from edl_worker.training.replica import ParameterReplica
from edl_worker.transport.master_client import MasterClient, MasterReplacedError

log = logging.getLogger(__name__)

__all__ = ["OutOfOrderError", "TaskLostError", "TaskRunner"]


class TaskRunner:
    """A loaded model at work for one master."""

    def __init__(
        self,
        loaded: LoadedModel,
        client: MasterClient,
        state: SharedState,
        metrics: WorkerMetrics,
        settings: Settings,
    ) -> None:
        self._loaded = loaded
        self._client = client
        self._state = state
        self._replica: ParameterReplica | None = None
        self._training: TrainingLoop | None = None
        if loaded.trainer is not None and loaded.arena is not None:
            precision = loaded.job.training.wire_precision
            self._replica = ParameterReplica(
                loaded.arena, loaded.trainer, client, loaded.tables, precision
            )
            loaded.infer.rows = self._replica.frozen_rows
            self._training = TrainingLoop(
                replica=self._replica,
                trainer=loaded.trainer,
                state=state,
                metrics=metrics,
                zoo=loaded.zoo,
                sync=loaded.job.training.update == job_pb2.SYNC,
                overlap=loaded.job.training.overlap,
                local_steps=loaded.job.training.local_steps,
                minibatch_size=loaded.job.minibatch_size,
                prefetch_lead_s=settings.prefetch_lead_s,
                tables=loaded.tables,
            )
        self._at: tuple[int, Batch] | None = None

    def describe(self) -> task_pb2.ModelDescription:
        return self._loaded.describe()

    def pipeline(self, lease: task_pb2.Lease) -> Iterator[Batch] | None:
        return self._loaded.pipeline(lease)

    def send_initial_values(self) -> None:
        """Give the master this worker's initial values, unless another's were first."""
        assert self._replica is not None, "only a training job has initial values"
        accepted = self._replica.send_initial()
        log.info("the initial values are %s", "this worker's" if accepted else "another worker's")

    def forget(self) -> None:
        """The parameters are no version of the present master."""
        if self._replica is not None:
            self._replica.forget()

    def do(self, assignment: Assignment, prefetcher: LeasePrefetcher) -> task_pb2.CompleteRequest:
        """Do one task; the answer is what to report of it.

        Raises:
            TaskLostError: somebody else has it now.
            OutOfOrderError: it has to be handed back.
            EdlError: it failed.
            LeavingError: the worker has to leave; the task stays held.
            MasterReplacedError: the master it was for is gone.
        """
        lease = assignment.lease
        self._at = None
        with self._explained(lease):
            if assignment.failure is not None:
                raise assignment.failure
            done = task_pb2.CompleteRequest(
                lease=assignment.ref, records=lease.records.stop - lease.records.start
            )
            match lease.task.type:
                case task_pb2.TRAINING:
                    self._train(assignment, prefetcher, done)
                case task_pb2.EVALUATION:
                    self._evaluate(assignment, done)
                case task_pb2.EVALUATION_SUMMARY:
                    done.metrics.update(
                        evaluation.summarize(self._loaded.model_file, lease.metric_states)
                    )
                case task_pb2.PREDICTION:
                    self._predict(assignment, done)
                case task_pb2.EXPORT:
                    self._export(lease)
                case other:
                    raise EdlError(
                        error_pb2.INTERNAL,
                        f"a task of the unknown type {other}",
                        remedy="Master and worker must be of one version of edl.",
                    )
        return done

    def is_permanent(self, error: EdlError) -> bool:
        """Whether trying a task again cannot help."""
        return task_errors.is_permanent(error)

    # --- types of tasks --------------------------------------------------------------------

    def _train(
        self, assignment: Assignment, prefetcher: LeasePrefetcher, done: task_pb2.CompleteRequest
    ) -> None:
        assert self._training is not None, "training tasks come in training jobs"
        trained = self._training.run(assignment, prefetcher)
        done.minibatches = trained.minibatches
        done.examples = trained.examples

    def _evaluate(self, assignment: Assignment, done: task_pb2.CompleteRequest) -> None:
        assert assignment.batches is not None, "an evaluation task has records"
        self._use_frozen(assignment.lease)
        result = evaluation.evaluate(
            self._loaded.model_file,
            self._loaded.infer,
            assignment.batches,
            lambda index, batch: self._reached(assignment, index, batch),
        )
        done.minibatches = result.minibatches
        done.examples = result.examples
        done.metric_states.extend(result.states)

    def _predict(self, assignment: Assignment, done: task_pb2.CompleteRequest) -> None:
        assert assignment.batches is not None, "a prediction task has records"
        result = prediction.predict(
            self._loaded.infer,
            self._loaded.output_names,
            assignment.lease,
            assignment.batches,
            lambda index, batch: self._reached(assignment, index, batch),
        )
        done.minibatches = result.minibatches
        done.examples = done.records = result.predictions

    def _export(self, lease: task_pb2.Lease) -> None:
        assert self._loaded.exporter is not None, "only a training job has something to export"
        self._use_frozen(lease)
        self._state.phase = task_pb2.COMPUTING
        with contextlib.ExitStack() as stack:
            if self._loaded.tables is not None and self._replica is not None:
                stack.enter_context(self._loaded.tables.held(self._replica.scan))
            self._loaded.exporter.export(lease.export, lease.part_path)

    # --- around them -----------------------------------------------------------------------

    def _use_frozen(self, lease: task_pb2.Lease) -> None:
        if lease.frozen and self._replica is not None:
            self._state.phase = task_pb2.EXCHANGING
            self._replica.use_frozen(lease.frozen)

    def _reached(self, assignment: Assignment, index: int, batch: Batch) -> None:
        """Before each minibatch of a task that reports only at its end."""
        self._at = index, batch
        self._state.phase = task_pb2.COMPUTING
        self._state.check()
        if self._state.replaced:
            raise MasterReplacedError("said a heartbeat")
        if self._state.is_lost(assignment.ref):
            raise TaskLostError

    @contextlib.contextmanager
    def _explained(self, lease: task_pb2.Lease) -> Iterator[None]:
        """Turns whatever is raised inside into an EdlError with the place in the data."""
        try:
            yield
        except (LeavingError, MasterReplacedError, TaskLostError, OutOfOrderError):
            raise
        except Exception as error:
            index, batch = self._at or (None, None)
            task = task_pb2.TaskType.Name(lease.task.type).lower().replace("_", " ")
            raise task_errors.explain(
                error,
                doing=f"the {task} task raised",
                where=task_errors.place(lease, index),
                zoo=self._loaded.zoo,
                model=self._loaded.model_file.model,
                batch=batch,
            ) from error
