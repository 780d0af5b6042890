"""The pytest hooks by which a run says and keeps what it has found; report/ has the texts and the files."""
