"""Connected iPhones and iPads as targets."""
