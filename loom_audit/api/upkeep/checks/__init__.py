"""What `doctor` looks at in a workspace and of the clients, each as a `Check`."""
