"""Records calls, each from its request to its one finish; the baseline, recovery, holds."""
