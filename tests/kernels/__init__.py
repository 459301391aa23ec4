"""Every kernel against the same mathematics in NumPy float64, on every device that runs here."""
