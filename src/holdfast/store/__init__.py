"""Where jobs are kept. A store keeps them in order, decides nothing, and implements `contract`."""
