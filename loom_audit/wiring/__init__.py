"""The only wiring: which adapters stand behind the ports."""
