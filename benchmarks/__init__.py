"""Speed and memory, each as a ratio against a plain reference in the same process."""
