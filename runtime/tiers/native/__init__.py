"""The native CPU tier: C++ compiled at first use by the compiler at hand, called through plain C."""
