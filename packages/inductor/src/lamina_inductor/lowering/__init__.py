"""From prims to loop-level IR."""
