"""From a config to a compiled round to a finished run: the only place that knows all other packages."""
