"""From bytes of a runtime to stored events of the controller: frame, parse once, spool, upload."""
