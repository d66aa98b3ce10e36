"""Which loops become one kernel, in which order, in which memory."""
