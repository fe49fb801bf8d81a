"""The parameter plane for many threads: the coordinator, and the store of this process.

See docs/adr/0017. Two locks: the coordinator's (short, around the push ledger) and that of each
locked shard (long, around one update or one copy of the values). Their order: job lock or shard
lock first, coordinator lock last; a thread that has the job lock never takes a shard lock.
"""
