"""The service: accepts runs, grants leases, stores events, and answers with reports and gates."""
