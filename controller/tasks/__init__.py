"""Background work of the controller (Celery). Safety and answers never depend on it, only promptness does.

A task takes ids, reads the rows again, does its work in short transactions, and may run twice.
"""
