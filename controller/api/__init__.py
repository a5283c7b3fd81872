"""The HTTP surface: routers by resource, thin; problems and authentication in one place each."""
