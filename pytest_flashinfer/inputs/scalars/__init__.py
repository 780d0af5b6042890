"""Values of scalar inputs."""
