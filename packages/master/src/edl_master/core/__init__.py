"""The master's heart, pure: facts in (``events``), decisions out (``effects``).

Read in this order; each room needs only those before it:
``names``, ``failure``, ``events``, ``effects`` the vocabulary; ``settings`` the rules;
``order``, ``tasks``, ``leases``, ``ledger`` what there is to do and who holds it;
``failures``, ``member``, ``members`` workers, their instances, and what goes wrong;
``evaluation``, ``workflow``, ``outcome`` what follows what, and how it ends;
``progress``, ``view``, ``looking`` what it looks like; ``components``, ``snapshots``, ``dispatch``,
``job`` all of it together. ``parameters`` is the plane; ``platform`` the port for instances.
"""
