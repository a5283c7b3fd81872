"""One virtual iPhone: what it is, keeps and does, whoever asks."""
