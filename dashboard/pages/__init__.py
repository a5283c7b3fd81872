"""One module per page: a skeleton that shows at once, and callbacks that fill it over REST."""
