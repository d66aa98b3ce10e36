"""What happens outside the compiled graphs: calling convention, mutation, aliasing, shared inputs."""
