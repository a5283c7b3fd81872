"""The process that speaks the contract: stages, trials, arms, events out.

It asks the scheduler what to compute, lets the model compute it, and writes what happened as events.
"""
