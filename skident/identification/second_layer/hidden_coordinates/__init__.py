"""The second layer from derivatives by first-layer outputs, which are free coordinates if there are enough inputs."""
