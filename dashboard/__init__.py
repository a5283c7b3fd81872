"""Web pages over the REST surface: fleet, runs, one run (live, then its report), two runs compared."""
