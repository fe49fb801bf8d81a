"""How the members of a replica group exchange numbers without the master.

One module for each way on which bytes move. What a step is, and whether it counts, is not known
here.
"""
