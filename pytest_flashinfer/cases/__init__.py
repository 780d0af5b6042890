"""The cases that a solution is called with, and their inputs."""
