"""The Keras callbacks of a training job: one call before the first epoch and one after each.

A worker makes each call as a task. What callbacks remember and decide comes back with the task and
is part of every snapshot: a decision is made once, and is undone only together with the epoch that
it follows from. The learning rate is here, too: callbacks change it, and so may a client, with
``edl set``.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from typing import Any

from edl_master.core.effects import (
    CallbackCall,
    ChangeLearningRate,
    Effect,
    KeepBest,
    LogEvent,
    RestoreBest,
)
from edl_master.core.events import CallbackReply
from edl_master.core.failure import Failure
from edl_master.core.identifiers import TaskType
from edl_master.core.ledger import Ledger
from edl_master.core.tasks import Round

_AS_ASKED = "from now on, as a client has asked"


class EpochCallbacks:
    """The schedule of the callbacks, their arguments, and their decisions.

    Attributes:
        wanted: whether the model file has callbacks; False until a worker has said so.
        called: calls that are done; call 0 comes before the first epoch, call n after epoch n.
        stopped: a callback has ended the training.
        at_end: the best values are the model's again, and ``on_train_end`` is to be called.
        learning_rate: what callbacks or a client have set; None: as the optimizer says.
        requested_rates: how often a client has set it.
        best_epoch: the epoch after which the values were the best, for a callback that wants them
            back; None: no values are kept.
    """

    def __init__(self, ledger: Ledger, emit: Callable[[Effect], None]) -> None:
        self._ledger = ledger
        self._emit = emit
        self.wanted = False
        self.called = 0
        self.stopped = False
        self.at_end = False
        self._begins_again = False
        self.learning_rate: float | None = None
        self.requested_rates = 0
        self._is_described = False
        self._early_rate: float | None = None
        self.best_epoch: int | None = None
        self._state = b""
        self._is_open = False
        self._loss = (0.0, 0)
        self._names: tuple[str, ...] | None = None

    def describe(self, names: tuple[str, ...]) -> Failure | None:
        """Take the callbacks from the first worker; compare those of all others with them.

        What callbacks remember fits only the same ones, also if a job continues from a checkpoint.

        Args:
            names: of their classes, in order.

        Returns:
            Why the job cannot continue; None: they are the job's.
        """
        self._is_described = True
        if self._early_rate is not None:
            self._change_rate(self._early_rate, _AS_ASKED)
            self._early_rate = None
        if self._names is None:
            self._names = names
            self.wanted |= bool(names)
        if names == self._names:
            return None
        mine, others = (", ".join(each) or "none" for each in (names, self._names))
        return Failure(
            "MODEL_CONTRACT",
            f"the callbacks of the model file are {mine}, and this job began with {others}",
            "callbacks",
            "Use the callbacks that the job began with. To train with others from the beginning, "
            "use another name or checkpoint directory.",
        )

    def record_applied(self, loss: float, records: int) -> None:
        """Record the loss of a minibatch of the present epoch that is in the model."""
        if self.wanted and math.isfinite(loss):
            total, count = self._loss
            self._loss = total + loss * records, count + records

    def due(self, ended: int) -> bool:
        """Return whether the work after ``ended`` epochs waits for a call."""
        if not self.wanted or self.at_end:
            return self.wanted
        return not self.stopped and (self._begins_again or self.called <= ended)

    def begin_again(self) -> None:
        """Have the next epoch begin, although the last call has ended the training."""
        self._begins_again = True

    def advance(self, ended: int) -> None:
        """Make the next call if it is due; to be called when no evaluation is under way.

        Args:
            ended: epochs that are over.
        """
        if self.due(ended) and not self._is_open:
            self._is_open = True
            number = ended if self._begins_again and not self.at_end else self.called
            self._ledger.open_round(Round(TaskType.CALLBACKS, number, None))

    def next_call(self, metrics: Mapping[str, float]) -> CallbackCall:
        """Return the arguments that the holder of the task calls the callbacks with.

        Args:
            metrics: of the last evaluation.
        """
        total, records = self._loss
        logs = {"loss": total / records} if records else {}
        if self.called:
            logs |= {f"val_{name}": value for name, value in metrics.items()}
        begins = self._begins_again and not self.at_end
        return CallbackCall(self._state, logs, self.learning_rate, self.at_end, begins)

    def apply_reply(self, reply: CallbackReply) -> None:
        """Apply the reply of the call that was made."""
        self._is_open, self._state = False, reply.state
        if self.at_end:
            self.at_end = False
            return
        if self._begins_again:
            self._begins_again = False
            self.called -= 1  # the call after the last epoch was made before
        epoch, self.called = self.called, self.called + 1
        if not reply.restore_best:  # the last call gets the same logs
            self._loss = (0.0, 0)
        if reply.learning_rate is not None:
            self._change_rate(reply.learning_rate, f"from epoch {epoch + 1} on")
        if reply.keep_best:
            self.best_epoch = epoch
            self._emit(KeepBest())
        if reply.stopped_by:
            self.stopped = True
            line = f"{reply.stopped_by} ends the training after epoch {epoch}."
            self._emit(LogEvent("TrainingStopped", line, facts={"epoch": str(epoch)}))
        self.at_end = reply.restore_best
        if reply.restore_best and self.best_epoch is not None and self.best_epoch != epoch:
            self._emit(RestoreBest())
            line = f"The model gets the values that it had after epoch {self.best_epoch}."
            self._emit(LogEvent("BestRestored", line, facts={"epoch": str(self.best_epoch)}))

    def set_learning_rate(self, rate: float, number: int) -> None:
        """Set the learning rate as a client has asked; nothing if that request is done already.

        Callbacks see this rate at their next call and may change it. The parameters of a job that
        continues are there when its first worker has described the model: the rate waits for that.

        Args:
            number: of the request; 0: the next one.
        """
        number = number or self.requested_rates + 1
        if number > self.requested_rates:
            self.requested_rates = number
            if self._is_described:
                self._change_rate(rate, _AS_ASKED)
            else:
                self._early_rate = rate

    def _change_rate(self, rate: float, when: str) -> None:
        self.learning_rate = rate
        self._emit(ChangeLearningRate(rate))
        line = f"The learning rate is {rate:.6g} {when}."
        self._emit(LogEvent("LearningRateSet", line, facts={"learning_rate": repr(rate)}))

    def snapshot(self) -> dict[str, Any]:
        """Return what survives the master as JSON-able values."""
        return {
            "wanted": self.wanted,
            "names": self._names,
            "called": self.called,
            "stopped": self.stopped,
            "at_end": self.at_end,
            "begins_again": self._begins_again,
            "learning_rate": self.learning_rate,
            "requested_rates": self.requested_rates,
            "best_epoch": self.best_epoch,
            "state": b64encode(self._state).decode(),
            "loss": list(self._loss),
        }

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what ``snapshot`` saved; a call that was under way is made again."""
        self.wanted, self.called = saved["wanted"], saved["called"]
        if (names := saved.get("names")) is not None:  # not in checkpoints of earlier versions
            self._names = tuple(names)
        self.stopped, self.learning_rate = saved["stopped"], saved["learning_rate"]
        self.requested_rates = saved.get("requested_rates", 0)
        self.best_epoch, self.at_end = saved.get("best_epoch"), saved.get("at_end", False)
        self._begins_again = saved.get("begins_again", False)
        self._state = b64decode(saved["state"])
        total, records = saved["loss"]
        self._loss = total, records
