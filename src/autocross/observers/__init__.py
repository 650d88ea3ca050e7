"""Events -> somewhere. Observers watch and cannot steer."""
