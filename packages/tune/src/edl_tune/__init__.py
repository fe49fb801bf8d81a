"""``edl tune``: searches for the hyperparameters of a model with training jobs.

A **study** is one search. It runs **trials**: the trial 7 of the study ``circle`` is the job
``circle-0007``, an ordinary job of ``edl train`` with values from the **search space**. The
**objective** is a metric of the evaluation at the end of a trial. The **sampler** proposes values,
and the **pruner** stops trials that promise little; both are Optuna's.

What is decided and what is done are apart:

- ``core`` decides, as pure code: ``Study`` takes events (a trial was proposed, a job was seen) and
  returns effects (propose a trial, start a job, stop it, finish a trial).
- ``ports`` has the two things that it needs: ``TrialJobs`` runs the jobs, and ``TrialStore`` keeps
  the trials.
- ``adapters`` has edl's jobs, Optuna's storage, and the folder of a study.
- ``study_runner`` looks at the jobs and carries the effects out.

The store is the truth. It gives each trial its number before anything starts, and jobs go by that
number: a command that is killed at any moment leaves a store and some jobs, and the next command
finds each unfinished trial's job by its name. It starts a job only if there is none of that name,
and a job is exactly once whatever happens to its processes, so the counts of each trial are exact.

What runs trials and shows them belongs here; what trains is the client's.
"""
