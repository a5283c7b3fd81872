"""What can go wrong with a virtual iPhone, on request."""
