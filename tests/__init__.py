"""The promises that Holdfast makes, each as a test."""
