"""What a run says and keeps."""
