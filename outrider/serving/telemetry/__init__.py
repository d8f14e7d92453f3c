"""What a service tells about itself while it runs."""
